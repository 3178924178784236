"""Pictures of a run as inline SVG: pure functions from plain data to markup.

Colours and fonts come from the classes that page.css styles; every picture also says what it shows in words.
"""
