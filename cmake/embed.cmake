# cmake -P embed.cmake: writes OUTPUT, the C++ source of dashboard_files(), from the files in FOLDER.
# Raw string literals are limited in length by some compilers, so each line is one, and they are joined by the compiler.
set(files "/|index.html|text/html\; charset=utf-8"
          "/dashboard/style.css|style.css|text/css\; charset=utf-8"
          "/dashboard/data.js|data.js|text/javascript\; charset=utf-8"
          "/dashboard/charts.js|charts.js|text/javascript\; charset=utf-8"
          "/dashboard/dashboard.js|dashboard.js|text/javascript\; charset=utf-8")
set(source "// Made by cmake/embed.cmake from src/serve/dashboard. Do not edit.\n#include \"serve/dashboard.h\"\n\n")
string(APPEND source "namespace switchyard::serve {\nnamespace {\n\nusing namespace std::string_view_literals;\n\n")
string(APPEND source "constexpr DashboardFile kFiles[] = {\n")
foreach(entry IN LISTS files)
  string(REGEX MATCH "^([^|]*)\\|([^|]*)\\|(.*)$" matched "${entry}")
  set(path "${CMAKE_MATCH_1}")
  set(type "${CMAKE_MATCH_3}")
  file(READ "${FOLDER}/${CMAKE_MATCH_2}" hex HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n" lines "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" lines "${lines}")
  string(REGEX REPLACE "\n+$" "" lines "${lines}")
  string(REPLACE "\n" "\"\n     \"" lines "${lines}")
  string(APPEND source "    {\"${path}\", \"${type}\",\n     \"${lines}\"sv},\n")
endforeach()
string(APPEND source "};\n\n}  // namespace\n\nstd::span<const DashboardFile> dashboard_files() { return kFiles; }\n\n")
string(APPEND source "}  // namespace switchyard::serve\n")
file(WRITE "${OUTPUT}" "${source}")
