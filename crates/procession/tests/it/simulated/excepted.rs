//! The tests that do not run in the simulation, and why.

use std::path::Path;

/// Returns the reason why a test is left out.
///
/// With the environment variable `SIM_EXCEPTED`, none is: this shows whether a reason still holds.
pub(crate) fn reason(name: &str) -> Option<&'static str> {
    if std::env::var_os("SIM_EXCEPTED").is_some() {
        return None;
    }
    let of_module = MODULES.iter().find(|found| name.split("::").next() == Some(found.0));
    if let Some(found) = of_module {
        return Some(found.1);
    }
    let slow = cfg!(debug_assertions).then_some(SLOW);
    EXCEPTED
        .iter()
        .copied()
        .chain(slow)
        .find(|(_, names)| names.contains(&name))
        .map(|found| found.0)
}

/// A list that names a test which is gone would except the next one of that name. The modules of
/// other rooms are in other programs, which look at them.
#[core::prelude::v1::test]
fn what_is_excepted_exists() {
    let program = std::env::current_exe().expect("the test runs");
    let list = std::process::Command::new(program).args(["--list", "--format", "terse"]).output();
    let list = String::from_utf8(list.expect("it can be started").stdout).expect("names are ASCII");
    let tests: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let excepted = EXCEPTED.iter().chain([&SLOW]).flat_map(|(_, names)| *names).chain(POLLING);
    let mut sorted: Vec<_> = excepted.copied().collect();
    let module = |name: &str| name.split("::").next().map(str::to_owned);
    let modules: Vec<_> = tests.iter().map(|test| module(test)).collect();
    let is_here = |name: &&str| modules.contains(&module(name));
    let is_gone = |name: &&str| !tests.contains(name);
    let gone: Vec<_> = sorted.iter().copied().filter(is_here).filter(is_gone).collect();
    assert_eq!(gone, <[&str; 0]>::default(), "no test has this name");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for name in sorted.iter().copied().chain(MODULES.iter().map(|(module, _)| *module)) {
        let file = format!("{}.rs", module(name).expect("a name has a first part"));
        assert!(folder.join(&file).exists(), "{name} is in no module");
    }
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|names| names[0] != names[1]), "each is listed once");
}

/// Returns `true` for a test that polls by hand, and so needs the usual budgets.
pub(crate) fn polls_by_hand(name: &str) -> bool {
    POLLING.contains(&name)
}

/// Modules that are left out as a whole.
const MODULES: &[(&str, &str)] = &[
    ("beam", OTHER_PROGRAMS),
    ("bridge", "It runs a runtime of tokio's beside the scheduler."),
    ("children", OTHER_PROGRAMS),
    ("layers", "It reads sources."),
    ("paused", "It runs a runtime of tokio's beside the scheduler."),
    ("refusals", OTHER_PROGRAMS),
    ("signals", OTHER_PROGRAMS),
];

const OTHER_PROGRAMS: &str =
    "It is about other programs, or about limits of this one and signals to it.";

type Tests = (&'static str, &'static [&'static str]);

const EXCEPTED: &[Tests] = &[
    (OTHER_PROGRAMS, &["budget::what_has_nothing_to_do_lets_others_run"]),
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
            "sockets::attempts::an_address_that_does_not_answer_is_passed_over",
            "sockets::few::a_listener_outlives_the_want_of_descriptors",
            "sockets::gone::a_write_to_a_peer_that_has_gone_raises_no_signal",
        ],
    ),
    (
        "It is about a child of this program: its output, its limits, its user, or signals to it.",
        &[
            "door::life::a_door_that_cannot_be_opened_for_the_variable_is_reported",
            "door::life::the_end_of_a_program_removes_the_socket_of_the_default_scheduler",
            "door::life::the_variable_is_ignored_with_the_rights_of_another_user",
            "door::life::the_variable_opens_a_door_and_nothing_else_does",
            "files::ends::a_block_on_has_written_what_its_processes_wrote",
            "files::ends::a_join_has_written_what_its_process_wrote",
            "files::ends::a_shutdown_of_the_default_scheduler_gives_up_at_its_deadline",
            "files::ends::a_write_that_a_shutdown_gives_up_does_not_hold_up_the_end_of_main",
            "files::ends::processes_of_the_default_scheduler_end_with_main_wherever_they_are",
            "files::ends::run_has_written_what_its_future_wrote",
            "files::ends::the_end_of_main_reports_a_write_whose_error_nobody_received",
            "files::ends::the_end_of_main_waits_for_writes_of_plain_threads",
            "files::ends::the_end_of_main_waits_for_writes_of_the_default_scheduler",
            "files::errors::a_standard_stream_keeps_what_was_refused",
            "files::positions::a_child_reads_what_follows",
            "reports::a_burst_is_a_few_lines_and_a_count",
            "reports::a_panic_is_reported_even_if_its_process_runs_in_the_destructor_of_a_local",
            "reports::a_standard_error_that_nobody_reads_holds_up_neither_workers_nor_the_shutdown",
            "reports::a_standard_error_without_a_reader_loses_lines_and_nothing_else",
            "reports::a_writer_that_was_idle_writes_again",
            "reports::catches::every_caught_panic_is_printed_once",
            "reports::failures_are_printed_by_default_and_a_program_that_ends_at_once_has_printed_them",
            "reports::hooks_silence_what_is_printed_and_their_panics_are_told",
            "reports::reached::with_the_panic_hook_a_panic_that_reaches_somebody_is_one_line_with_its_place",
            "reports::the_panic_hook_leaves_backtraces_to_the_hook_before_it",
            "reports::the_panic_hook_names_the_process_and_the_place_and_prints_nothing_twice",
            "reports::with_the_panic_hook_a_panic_after_the_report_is_printed",
            "reports::with_the_panic_hook_a_panic_of_a_destructor_that_ends_nothing_is_printed",
            "reports::with_the_panic_hook_a_second_panic_hides_neither",
            "stalls::a_watchdog_without_descriptors_is_not_blind",
            "stalls::steps_of_a_program_that_was_stopped_do_not_stall",
        ],
    ),
    (
        "It waits in the real system, for a barrier, a lock that is held over a wait, a socket, a FIFO, \
         or the locals of a thread that has ended.",
        &[
            "bounds::busy::a_timer_of_a_worker_in_a_blocking_section_is_served_in_time",
            "coroutines::endings::a_coroutine_that_swallows_its_unwinding_for_ever_ends_without_its_stack",
            "coroutines::foreign::a_coroutine_that_always_waits_again_is_listed_as_stuck",
            "coroutines::stacks::no_coroutine_waits_for_a_stack_that_was_leaked",
            "coroutines::poll::a_poll_that_cannot_suspend_blocks_its_thread",
            "files::a_dropped_file_finishes_its_write",
            "files::a_process_that_opens_a_fifo_without_a_writer_can_be_ended",
            "files::a_read_that_was_dropped_leaves_its_data_for_the_next",
            "files::abandoned_reads_do_not_keep_a_scheduler",
            "files::ends::a_service_that_leaves_a_write_fails",
            "files::ends::a_shutdown_reports_the_writes_that_it_leaves",
            "files::ends::a_shutdown_that_is_awaited_elsewhere_gives_up_at_its_deadline",
            "files::ends::a_shutdown_waits_for_a_slow_reader",
            "files::ends::a_shutdown_waits_for_a_write_of_a_whole_file_whose_process_it_has_dropped",
            "files::ends::a_write_that_a_shutdown_gives_up_holds_up_no_other_shutdown",
            "files::errors::a_file_in_non_blocking_mode_is_waited_for",
            "files::positions::a_fifo_keeps_what_no_read_asked_for",
            "files::the_test_clock_stands_still_during_an_operation",
            "files::what_a_fifo_gave_in_advance_outlives_a_write",
        ],
    ),
    (
        "It needs more than the simulated network has: options of sockets, groups, the queue of a \
         listener, addresses that are in use twice, hosts that vanish, timeouts of the system, \
         datagrams that arrive at once, or clients of std.",
        &[
            "budget::a_socket_that_is_always_ready_lets_others_run",
            "sockets::a_connect_that_is_not_answered_ends_in_time",
            "http::drain::a_request_in_the_socket_is_answered",
            "http::drain::no_request_is_lost_by_a_sigterm_under_load",
            "http::gone::a_client_that_leaves_behind_a_large_body_drops_the_handler",
            "http::gone::a_client_that_resets_its_connection_is_no_failure",
            "http::gone::a_half_closed_client_is_answered_while_its_body_is_read_slowly",
            "http::gone::a_refusal_arrives_though_more_was_sent",
            "http::gone::a_request_names_its_host_once",
            "http::gone::an_answer_to_a_body_that_nobody_reads_arrives_whole",
            "http::gone::clients_that_keep_their_connections_learn_of_the_end",
            "sockets::gone::a_connect_to_a_machine_that_never_answers_ends_in_time",
            "sockets::gone::a_peer_that_vanishes_is_found_out_by_each_timeout",
            "sockets::options::datagrams_reach_the_members_of_a_group",
            "sockets::options::options_are_those_of_the_system",
            "sockets::options::options_of_datagrams_are_those_of_the_system",
            "sockets::options::options_of_ipv6_are_those_of_the_system",
            "sockets::options::sockets_are_made_with_options",
        ],
    ),
    (
        "It keeps the thread of a worker before its first step, which the simulation takes for a worker \
         that counts as searching.",
        &[
            "stalls::a_worker_that_is_late_is_not_relied_on",
            "stalls::work_from_inside_does_not_wait_for_workers_that_are_late",
        ],
    ),
    (
        "It is about std's clock, of which the simulated one is no part.",
        &["time::extremes::only_moments_of_the_real_clock_are_moments_of_std"],
    ),
    (
        "A signal interrupts a step to copy the stack of its thread, which waits for its turn.",
        &[
            "requests::stacks::steps::a_step_of_a_state_machine_that_does_not_end_has_a_stack",
            "requests::stacks::steps::a_step_that_does_not_end_shows_what_it_does",
        ],
    ),
    ("It hears signals of the system.", &["sync::streams::signals_are_a_stream"]),
    (
        "It counts samples of steps that compute, for which no virtual time passes.",
        &["look::samples_show_who_computes"],
    ),
    (
        "Beside many other simulations, a seed ran twice and differed by 60 ns to 20 us. Probably its \
         answers differ in length, because they name PIDs, and other tests have started schedulers.",
        &[
            "door::live::the_timeline_shows_the_location_that_was_busy",
            "door::views::traces_run_one_at_a_time_and_hold_nobody_up",
        ],
    ),
    ("It takes minutes there.", &["promises::a_million_are_spawned_messaged_and_ended"]),
];

/// Tests that take seconds each in an unoptimised build, which leaves them to the optimised one.
const SLOW: Tests = (
    "It is slow in an unoptimised build.",
    &[
        "bounds::a_message_is_received_in_time_beside_more_that_continue_than_a_ring_holds",
        "bounds::many_from_outside_wait_for_none_but_those_before_them",
        "bounds::shares::a_busy_worker_takes_over_from_one_that_has_more",
        "bounds::shares::more_that_yield_than_a_ring_holds_get_equal_shares",
        "bounds::shares::pairs_of_caller_and_server_get_equal_shares",
        "bounds::shares::pairs_over_rendezvous_channels_get_equal_shares",
        "bounds::shares::pairs_that_exchange_messages_get_equal_shares",
        "cancel::shutdown::a_deep_chain_is_dropped_link_by_link",
        "cancel::shutdown::a_parent_with_very_many_children_is_followed_by_all_of_them",
        "contracts::marks::what_is_received_is_as_of_a_list",
        "contracts::monitors::an_end_comes_behind_the_messages_sent_before",
        "contracts::monitors::every_end_of_200_000_killed_at_once_is_told_and_nobody_is_left",
        "contracts::supervisors::moments::one_event_at_each_moment_leaves_a_whole_tree_or_none",
        "contracts::supervisors::moments::two_events_at_each_moment_leave_a_whole_tree_or_none",
        "door::access::a_byte_at_a_time_takes_too_long",
        "door::live::looks_come_at_most_four_times_a_second",
        "door::metrics::busy_workers_and_waiting_queues_are_seen",
        "door::metrics::counters_never_fall",
        "fairness::the_global_queue_is_served_beside_hogs",
        "idle::a_timer_wakes_few_of_many_workers",
        "order::programs_are_dispatched_in_the_recorded_order",
        "pool::model::a_function_pool_of_coroutines_does_what_a_sequential_model_does",
        "pool::model::a_function_pool_of_processes_does_what_a_sequential_model_does",
        "pool::model::a_pool_of_coroutines_does_what_a_sequential_model_does",
        "pool::model::a_pool_of_processes_does_what_a_sequential_model_does",
        "shutdown::load::a_hundred_thousand_idle_processes_end_in_order",
        "sockets::gone::a_crowd_that_vanishes_is_forgotten",
        "stress::two_hundred_thousand_are_alive_at_once",
        "time::stress::thousands_of_sleeps_all_end",
    ],
);

/// Tests that run with the usual budgets. They poll a future once, which does nothing but yield if
/// the drawn budget of the step is used up.
const POLLING: &[&str] = &[
    "budget::what_is_dropped_while_it_is_pending_has_not_acted",
    "ends::a_context_that_is_polled_at_the_end_receives_nothing_and_leaves_nothing",
    "panics::wakers::the_waker_of_a_combinator_panics_when_a_message_comes",
    "time::sleeps::a_process_that_ends_takes_its_timers_along",
    "time::sleeps::a_sleep_that_has_left_its_process_ends_elsewhere",
    "time::wakers::a_sleep_that_was_polled_on_a_test_clock_ends_on_that_clock",
    "time::wakers::a_sleep_that_was_polled_on_the_real_clock_ends_on_that_clock",
];
