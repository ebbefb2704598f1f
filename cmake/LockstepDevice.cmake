# The compilers of device code and the float flags of the law for them: what lockstep_flags is for the CPU.
#
# No contraction, correctly rounded division and square root, subnormals kept; tools/check_device_code reads the result.
# Code is made for LOCKSTEP_CUDA_ARCHITECTURES (and PTX of the last, for newer machines) and LOCKSTEP_HIP_ARCHITECTURES.
set(LOCKSTEP_CUDA_ARCHITECTURES 80 90 120 CACHE STRING "NVIDIA compute capabilities, ascending")
set(LOCKSTEP_HIP_ARCHITECTURES gfx1100 gfx1151 CACHE STRING "AMD targets")
set(lockstep_cuda_flags --fmad=false -prec-div=true -prec-sqrt=true -ftz=false)
set(lockstep_hip_flags -x hip -nogpulib -nogpuinc -ffp-contract=off)  # no device library: all math is ours

if(LOCKSTEP_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(LOCKSTEP_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(LOCKSTEP_NVCC)
      set(CMAKE_CUDA_COMPILER ${LOCKSTEP_NVCC})
    endif()
  endif()
  list(TRANSFORM LOCKSTEP_CUDA_ARCHITECTURES APPEND -real OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  list(GET LOCKSTEP_CUDA_ARCHITECTURES -1 newest)
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${newest}-virtual)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 has not heard that nvcc knows C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
    message(FATAL_ERROR "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old, expected 12.4 or newer")
  endif()
  add_library(lockstep_device_flags INTERFACE)
  target_compile_options(lockstep_device_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:${lockstep_cuda_flags};-Xcompiler=-ffp-contract=off,-Wall,-Wextra>")
  if(LOCKSTEP_WERROR)
    target_compile_options(lockstep_device_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
  endif()
  target_include_directories(lockstep_device_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
endif()

if(LOCKSTEP_HIP)
  find_program(LOCKSTEP_HIP_COMPILER NAMES amdclang++ clang++-19 clang++-18 clang++-17 clang++ HINTS /opt/rocm/bin)
  # Only the runtime's C interface is used, so its age does not matter.
  find_library(LOCKSTEP_HIP_RUNTIME amdhip64 HINTS /opt/rocm/lib)
  find_path(LOCKSTEP_HIP_INCLUDE hip/hip_runtime_api.h HINTS /opt/rocm/include)
  foreach(part COMPILER RUNTIME INCLUDE)
    if(NOT LOCKSTEP_HIP_${part})
      message(FATAL_ERROR "HIP: no ${part} found, expected clang >= 17 with lld, libamdhip64 and its headers; "
                          "set LOCKSTEP_HIP_${part}")
    endif()
  endforeach()
  message(STATUS "HIP compiler: ${LOCKSTEP_HIP_COMPILER}")
endif()

# lockstep_cuda_assembly(OUT SOURCE [ARCHITECTURE...]): SOURCE as PTX, a file an architecture (without any named, all);
# the files' names go into OUT.
function(lockstep_cuda_assembly out source)
  get_filename_component(name ${source} NAME_WE)
  set(architectures ${ARGN})
  if(NOT architectures)
    set(architectures ${LOCKSTEP_CUDA_ARCHITECTURES})
  endif()
  set(files)
  foreach(architecture ${architectures})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}.sm_${architecture}.ptx)
    add_custom_command(OUTPUT ${file}
      COMMAND ${CMAKE_CUDA_COMPILER} -std=c++20 -O3 -ptx -arch=compute_${architecture} ${lockstep_cuda_flags}
              -I ${CMAKE_SOURCE_DIR}/src -MD -MF ${file}.d -o ${file} ${source}
      DEPENDS ${source} DEPFILE ${file}.d VERBATIM)
    list(APPEND files ${file})
  endforeach()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# lockstep_hip_assembly(OUT SOURCE): SOURCE as AMD assembly, likewise.
function(lockstep_hip_assembly out source)
  get_filename_component(name ${source} NAME_WE)
  set(files)
  foreach(architecture ${LOCKSTEP_HIP_ARCHITECTURES})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}.${architecture}.s)
    add_custom_command(OUTPUT ${file}
      COMMAND ${LOCKSTEP_HIP_COMPILER} -std=c++20 -O3 -Wall -Wextra -Werror ${lockstep_hip_flags} --cuda-device-only
              --offload-arch=${architecture} -S -I ${CMAKE_SOURCE_DIR}/src -idirafter ${LOCKSTEP_HIP_INCLUDE}
              -MD -MF ${file}.d -o ${file} ${source}
      DEPENDS ${source} DEPFILE ${file}.d VERBATIM)
    list(APPEND files ${file})
  endforeach()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# lockstep_hip_object(OUT SOURCE): SOURCE for host and device, an object file; its name goes into OUT. A hint to unroll
# that this compiler could not take is no defect.
function(lockstep_hip_object out source)
  get_filename_component(name ${source} NAME_WE)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}.hip.o)
  set(architectures ${LOCKSTEP_HIP_ARCHITECTURES})
  list(TRANSFORM architectures PREPEND --offload-arch=)
  add_custom_command(OUTPUT ${file}
    COMMAND ${LOCKSTEP_HIP_COMPILER} -std=c++20 -O3 -Wall -Wextra -Werror ${lockstep_hip_flags} ${architectures}
            -Wno-pass-failed -DLOCKSTEP_GPU_HIP -I ${CMAKE_SOURCE_DIR}/src -idirafter ${LOCKSTEP_HIP_INCLUDE}
            -MD -MF ${file}.d -c -o ${file} ${source}
    DEPENDS ${source} DEPFILE ${file}.d VERBATIM)
  set_source_files_properties(${file} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${out} ${file} PARENT_SCOPE)
endfunction()

# lockstep_hip_program(NAME SOURCE): one source, host and device code for every architecture, as bin/NAME.
function(lockstep_hip_program name source)
  set(program ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name})
  set(architectures ${LOCKSTEP_HIP_ARCHITECTURES})
  list(TRANSFORM architectures PREPEND --offload-arch=)
  add_custom_command(OUTPUT ${program}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
    COMMAND ${LOCKSTEP_HIP_COMPILER} -std=c++20 -O3 -Wall -Wextra -Werror ${lockstep_hip_flags} ${architectures}
            -I ${CMAKE_SOURCE_DIR}/src -idirafter ${LOCKSTEP_HIP_INCLUDE}
            -MD -MF ${CMAKE_CURRENT_BINARY_DIR}/${name}.d
            -o ${program} ${source} -Wl,${LOCKSTEP_HIP_RUNTIME}
    DEPENDS ${source} DEPFILE ${CMAKE_CURRENT_BINARY_DIR}/${name}.d VERBATIM)
  add_custom_target(${name} ALL DEPENDS ${program})
endfunction()
