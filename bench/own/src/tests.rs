use super::workload::{Report, Spread, check};
use super::*;

fn printed(report: &Report, spreads: &[Spread]) -> String {
    let mut out = Vec::new();
    report.print(&workload::RING, spreads, &mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("figures are text")
}

#[test]
fn a_figure_is_the_median_of_its_rounds() {
    let people = Report { runtime: "procession", json: false };
    assert_eq!(
        printed(&people, &[Spread::of(vec![3.0, 1.25, 90.0])]),
        "ring                       3.0 ns per hop           1.2..90.0\n"
    );
    let program = Report { runtime: "procession", json: true };
    assert_eq!(
        printed(&program, &[Spread::of(vec![4.0, 3.0, 90.0, 1.0])]),
        "{\"workload\":\"ring\",\"runtime\":\"procession\",\"value\":3.50,\"unit\":\"ns\"}\n"
    );
}

#[test]
fn a_wrong_result_is_a_failure() {
    let run = |_: &(), _| check("the hops", 4, 3).map(|()| Vec::new());
    let failed = Workload { definition: &workload::RING, run }
        .measure(&(), 1, Scale::Tiny)
        .expect_err("3 is not 4");
    assert_eq!(failed.to_string(), "the hops: 3 instead of 4");
}

#[test]
fn a_panic_in_a_workload_is_a_failure() {
    let scheduler = <Scheduler as Peer>::start(&[]).expect("the system gives a thread");
    let failed = inside(&scheduler, async { panic!("out of luck") }).expect_err("it panics");
    assert_eq!(failed.to_string(), "the process panicked: out of luck");
}
