//! The tests that do not run in the simulation, and why.

/// Returns the reason why a test is left out.
pub(crate) fn reason(name: &str) -> Option<&'static str> {
    EXCEPTED.iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason)
}

const EXCEPTED: &[(&str, &[&str])] = &[
    (
        "It is about the whole program: its threads, its descriptors or its output.",
        &[
            "blocked::refused_threads_are_counted_and_harm_nobody",
            "blocked::to_block_on_a_future_that_no_thread_can_be_started_for_is_an_error",
            "coroutines::crash::a_destructor_that_panics_while_its_coroutine_panics_aborts",
            "coroutines::crash::an_overflow_names_the_process_and_where_it_was_spawned",
            "idle::forty_schedulers_are_silent_after_work_of_every_kind",
            "idle::what_waits_wakes_nobody_for_ten_seconds",
            "pool::threads::size::the_system_refusing_threads_gives_jobs_back",
            "promises::an_idle_scheduler_makes_no_wake_ups",
            "sockets::few::a_listener_outlives_the_want_of_descriptors",
            "sockets::gone::a_write_to_a_peer_that_has_gone_raises_no_signal",
        ],
    ),
    (
        "It waits in the real system, for a barrier, a lock that is held over a wait, or a socket.",
        &[
            "blocked::a_burst_of_blockers_up_to_the_maximum_of_threads_only_queues",
            "blocked::a_process_that_blocks_is_not_idle",
            "blocked::others_run_at_full_width_beside_up_to_twice_as_many_that_block",
            "blocked::sections_at_the_maximum_of_threads_always_go_on",
            "blocked::threads::no_more_steps_run_at_once_than_the_scheduler_is_wide",
            "blocked::threads::processes_bound_to_a_worker_run_whichever_workers_have_the_permits",
            "blocked::threads::the_width_can_be_changed_a_thousand_times_under_load",
            "blocked::threads::threads_beyond_the_width_retire_and_come_back",
            "blocked::threads::threads_that_retire_beside_those_that_block_leave_one_to_keep_the_time",
            "bounds::busy::a_timer_of_a_worker_in_a_blocking_section_is_served_in_time",
            "coroutines::endings::a_coroutine_that_swallows_its_unwinding_for_ever_ends_without_its_stack",
            "coroutines::placement::beyond_the_limit_of_stacks_coroutines_wait_before_they_begin",
            "coroutines::poll::a_poll_that_cannot_suspend_blocks_its_thread",
            "coroutines::sockets::code_for_blocking_sockets_runs_in_coroutines_unchanged",
            "coroutines::sockets::timeouts_are_reported_as_by_std_and_threads_block",
            "coroutines::waits::where_a_coroutine_cannot_be_suspended_its_thread_blocks",
            "hostile::waits_in_a_destructor_of_a_thread_local",
            "pool::threads::a_submit_that_could_only_deadlock_is_refused",
            "shutdown::deadline::a_process_behind_a_stuck_step_is_reported_too",
            "shutdown::deadline::a_process_that_shuts_down_is_told_of_others_but_not_of_itself",
            "shutdown::deadline::a_step_that_does_not_return_is_reported_by_the_deadline",
            "shutdown::deadline::the_test_clock_stands_still_while_a_thread_starts_a_process",
            "sockets::plain_threads_and_processes_talk_over_tcp",
        ],
    ),
    (
        "It fails in the simulation, and the cause is not known yet.",
        &[
            "contracts::names::a_name_that_is_freed_as_it_is_registered_leaves_nothing_with_its_process",
            "contracts::recipients::each_message_is_received_refused_or_discarded_when_the_receiver_ends_amid_the_sends",
            "coroutines::callers::a_coroutine_that_begins_while_its_thread_ends_ends_with_the_drive",
            "coroutines::callers::a_thread_that_ends_wakes_a_caller_that_waits_for_its_coroutines",
            "ends::a_context_that_is_polled_at_the_end_receives_nothing_and_leaves_nothing",
            "fairness::signals::a_flood_of_signals_leaves_a_process_its_messages",
            "fairness::signals::a_flood_of_signals_leaves_a_process_its_steps",
            "here::a_thread_that_has_entered_an_ended_scheduler_starts_nothing",
            "net::a_batch_of_the_poller_wakes_a_worker_for_each_process",
            "net::a_worker_that_runs_what_was_polled_has_handed_the_reactor_off",
            "panics::wakers::the_waker_of_a_combinator_panics_when_a_message_comes",
            "promises::nothing_is_lost_or_doubled_under_stress",
            "promises::work_that_one_worker_queues_is_done_by_all",
            "select::chance_does_not_depend_on_the_place_of_an_arm",
            "sockets::gone::a_peer_that_vanishes_is_found_out_by_each_timeout",
            "sockets::slow::a_reader_that_never_reads_holds_up_its_own_writer_only",
            "sockets::streams_keep_bytes_and_order",
        ],
    ),
];
