# Read by CMake while llama-cpp-python is built (CMAKE_PROJECT_INCLUDE, see the Makefile).
# headstart uses libllama and ggml. llama.cpp's library of command-line tools ("common") is most of
# the build and not used; llama-cpp-python asks for it with a cache entry, which a plain variable
# of the same name outranks (CMake policy CMP0126).
set(LLAMA_BUILD_COMMON OFF)
