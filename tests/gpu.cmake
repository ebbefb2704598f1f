# The GPU back end against the literal loops and the golden hashes. Built where there is a GPU compiler; run where there
# is a GPU (label gpu). Its machine code is read wherever it is built (label device).
if(TARGET lockstep_gpu)
  add_dependencies(device lockstep_gpu)  # compiled for every architecture, also where its machine code cannot be read
  foreach(name gpu_ops_test gpu_cache_test gpu_model_test gpu_telemetry_test)
    add_executable(${name} ${name}.cc)
    target_link_libraries(${name} PRIVATE lockstep_flags GTest::gtest_main lockstep_gpu lockstep_ops lockstep_tensor)
    target_compile_definitions(${name} PRIVATE LOCKSTEP_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS gpu TIMEOUT 900)
  endforeach()
  target_link_libraries(gpu_model_test PRIVATE lockstep_engine lockstep_cpu)
  target_link_libraries(gpu_telemetry_test PRIVATE lockstep_engine lockstep_cpu)
  if(LOCKSTEP_CUDA)
    # What the front end makes of the kernels, for the newest architecture: ptxas may not fuse what is rounded there.
    list(GET LOCKSTEP_CUDA_ARCHITECTURES -1 newest)
    set(kernels_ptx)
    foreach(kernel ${LOCKSTEP_GPU_KERNELS})
      lockstep_cuda_assembly(kernel_ptx ${CMAKE_SOURCE_DIR}/src/gpu/${kernel} ${newest})
      list(APPEND kernels_ptx ${kernel_ptx})
    endforeach()
    add_custom_target(device_kernels_ptx DEPENDS ${kernels_ptx})
    add_dependencies(device device_kernels_ptx)
    add_test(NAME Law.CudaKernelsAreRoundedAsWritten
             COMMAND ${CMAKE_SOURCE_DIR}/tools/check_device_code ${kernels_ptx})
    set_tests_properties(Law.CudaKernelsAreRoundedAsWritten PROPERTIES LABELS "fast;device" TIMEOUT 300)
  endif()
  if(LOCKSTEP_CUDA AND LOCKSTEP_CUOBJDUMP)
    add_dependencies(device gpu_ops_test)
    add_test(NAME Law.CudaKernelsHaveNothingForbidden
             COMMAND ${CMAKE_SOURCE_DIR}/tools/check_device_code $<TARGET_FILE:gpu_ops_test>)
    set_tests_properties(Law.CudaKernelsHaveNothingForbidden PROPERTIES LABELS "fast;device" TIMEOUT 300)
  endif()
endif()
