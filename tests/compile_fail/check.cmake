# cmake -D COMPILER=c++ -D SNIPPET=<file> -D ROOT=<repository> -P check.cmake
file(STRINGS ${SNIPPET} expected REGEX "^// error: " LIMIT_COUNT 1)
string(REGEX REPLACE "^// error: " "" expected "${expected}")
if(expected STREQUAL "")
  message(FATAL_ERROR "${SNIPPET} has no line '// error: <regex of the error that its misuse must cause>'")
endif()
set(compile ${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-unused -Werror=unused-result -Werror=unused-value
  -I${ROOT} -I${ROOT}/include)

execute_process(COMMAND ${compile} ${SNIPPET} RESULT_VARIABLE result ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "right use does not compile:\n${output}")
endif()

execute_process(COMMAND ${compile} -D MISUSE ${SNIPPET} RESULT_VARIABLE result ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "misuse compiles: ${SNIPPET}")
endif()
string(REGEX MATCHALL "error:[^\n]*" errors "${output}")
if(NOT "${errors}" MATCHES "${expected}")
  message(FATAL_ERROR "misuse fails to compile, but not with '${expected}':\n${output}")
endif()
