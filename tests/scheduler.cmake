lockstep_test(scheduler_test SOURCES scheduler_test.cc USES engine cpu text base)
lockstep_test(scheduler_edits_test SOURCES scheduler_edits_test.cc USES engine cpu text base LABELS slow)
lockstep_test(scheduler_failures_test SOURCES scheduler_failures_test.cc USES engine cpu text base LABELS slow)
lockstep_test(scheduler_room_test SOURCES scheduler_room_test.cc USES engine cpu text base)
lockstep_test(agent_session_test WHOLE SOURCES agent_session_test.cc USES server cpu LABELS slow)
lockstep_test(step_pace_test SOURCES step_pace_test.cc USES engine base)

# The long forms, by command alone.
add_executable(session_runs session_runs.cc)
target_link_libraries(session_runs PRIVATE lockstep_flags lockstep_engine lockstep_cpu lockstep_text CLI11::CLI11)
