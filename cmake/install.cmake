# What is installed, and where. Two forms:
#
#   cmake --install build/release --prefix <prefix>    for C++: lib/libmarey.so, include/marey, bin/marey, the CMake package
#                                                      (find_package(marey), target marey::marey) and marey.pc
#   component "python", by scikit-build-core's wheel   the package folder marey/, which carries the same library and headers
#                                                      (python/CMakeLists.txt installs its modules), and the command line
include(CMakePackageConfigHelpers)

target_compile_features(marey INTERFACE cxx_std_20)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/marey)
install(TARGETS marey EXPORT marey-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(DIRECTORY include/marey DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT marey-targets NAMESPACE marey:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(cmake/marey-config.cmake.in ${PROJECT_BINARY_DIR}/marey-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/marey-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/marey-config.cmake ${PROJECT_BINARY_DIR}/marey-config-version.cmake
  DESTINATION ${package_dir} COMPONENT development)

# Relative to the file itself, so that an installed tree can be moved.
file(RELATIVE_PATH MAREY_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(cmake/marey.pc.in ${PROJECT_BINARY_DIR}/marey.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/marey.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

if(MAREY_BUILD_PYTHON)
  # A wheel holds no symbolic links: the library goes in once, under the name that is asked for at run time. EXCLUDE_FROM_ALL:
  # only with the component named, never in the C++ form.
  get_target_property(soversion marey SOVERSION)
  install(FILES $<TARGET_FILE:marey> DESTINATION marey/lib RENAME libmarey.so.${soversion} COMPONENT python EXCLUDE_FROM_ALL)
  install(DIRECTORY include/marey DESTINATION marey/include COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  if(SKBUILD AND TARGET marey_cli)
    install(PROGRAMS $<TARGET_FILE:marey_cli> DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python EXCLUDE_FROM_ALL)
  endif()
endif()
