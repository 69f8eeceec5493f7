//! Messages with a version in the formats of other crates, of types with every kind of field.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use procession_cluster::serialize::message;
use procession_cluster::{NodePid, Term};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Step {
    Wait,
    Say(String),
    Move { by: (i16, i128), with: Option<Box<Step>> },
    All(Vec<Step>),
    Units(Vec<()>),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Job {
    #[serde(default)]
    step: Option<Step>,
    #[serde(default)]
    notes: BTreeMap<u64, Vec<u8>>,
    #[serde(default)]
    worker: Option<NodePid>,
    #[serde(default)]
    letters: Vec<(char, bool, u128)>,
}

/// Needs to know what comes, which only one of the formats tells.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is only read")]
enum Any {
    Number(i64),
    Text(String),
    List(Vec<Any>),
    Map(BTreeMap<String, Any>),
}

fuzz_target!(|bytes: &[u8]| {
    let Some((format, term)) = procession_cluster::fuzzing::message(bytes) else { return };
    let jobs = message::<Job>("job", 1).in_format(format);
    if let Ok(job) = jobs.read(term.clone()) {
        let again = jobs.write(&job).expect("it can be written");
        assert_eq!(jobs.read(again).expect("it can be read"), job);
    }
    drop(message::<Any>("job", 1).in_format(format).read(term.clone()));
    drop(message::<Term>("job", 1).in_format(format).read(term));
});
