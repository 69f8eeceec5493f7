//! Tests of the kept reports.

use std::panic::Location;

use crate::process::reporting::ReportLevel;
use crate::relations::entries::PidList;
use crate::report::crash_report::{
    CRASHES_KEPT, CrashLog, CrashReport, SupervisorAnswer, TEXT_MAX, cut_exit,
};
use crate::report::exit_report::ExitReport;
use crate::{Exit, Pid};

fn report(slot: u32) -> CrashReport {
    CrashReport {
        number: 0,
        exit: ExitReport {
            pid: Pid::local(1, slot, 1),
            label: None,
            name: None,
            kind: "async",
            location: Location::caller(),
            parent: None,
            exit: Exit::failed("no disk"),
            level: ReportLevel::Error,
            panicked_at: None,
            scheduler: String::new(),
            steps: 1,
            received: 0,
        },
        waiting: 0,
        message: "()",
        ancestors: Vec::new(),
        links: PidList::default(),
        monitors: PidList::default(),
        supervisor: None,
        answer: None,
        #[cfg(feature = "door")]
        panic_stack: Vec::new(),
        at: 0,
    }
}

#[test]
fn the_last_reports_are_kept_and_numbered() {
    let log = CrashLog::default();
    for slot in 0..100 {
        log.keep(report(slot));
    }
    let numbers: Vec<_> = log.all().iter().map(|report| report.number).collect();
    assert_eq!(numbers, (37..=100).collect::<Vec<_>>());
    assert_eq!(numbers.len(), CRASHES_KEPT);
}

#[test]
fn an_answer_is_added_to_the_report_of_the_process() {
    let log = CrashLog::default();
    log.keep(report(1));
    log.keep(report(2));
    let before = log.all();
    log.answer(Pid::local(1, 1, 1), SupervisorAnswer::GaveUp);
    log.answer(Pid::local(1, 3, 1), SupervisorAnswer::GaveUp);
    let answers: Vec<_> = log.all().iter().map(|report| report.answer).collect();
    assert_eq!(answers, [Some(SupervisorAnswer::GaveUp), None]);
    assert_eq!(before[0].answer, None, "a report that was returned does not change");
}

#[test]
fn a_text_is_cut_at_the_end_of_a_character() {
    let long = Exit::failed("ä".repeat(TEXT_MAX));
    let Exit::Failed(text) = cut_exit(&long) else { panic!("it stays a failure") };
    assert_eq!(text.len(), TEXT_MAX);
    let odd = Exit::Panicked(format!("a{}", "ä".repeat(TEXT_MAX)).into());
    let Exit::Panicked(text) = cut_exit(&odd) else { panic!("it stays a panic") };
    assert_eq!(text.len(), TEXT_MAX - 1);
}
