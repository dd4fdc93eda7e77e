// The main() of every Catch2 test executable (Catch2 2 builds it here; Catch2 3 would bring its own).
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
