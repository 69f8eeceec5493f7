//! Values as terms and back.

use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{MessageError, from_term, message, to_term};
use crate::release::corpus;
use crate::term::{Atom, NodePid, Reference, Term};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Empty,
    One(Option<u64>),
    Two(String, i128),
    Named { at: (f64, f64), text: Vec<char> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Whole {
    unit: (),
    shapes: Vec<Shape>,
    by_number: BTreeMap<u8, Result<bool, String>>,
    newtype: Newtype,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Newtype(u128);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Identifiers {
    pid: NodePid,
    reference: Reference,
    atom: Atom,
    term: Term,
    maybe: Option<NodePid>,
}

fn pid() -> NodePid {
    NodePid { node: Atom::known("a@127.0.0.1"), id: 9, serial: 0, creation: 7 }
}

/// Checks the term of a value, and that it is read back.
fn check<T>(value: T, text: &str)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let term = to_term(&value).expect("it has a term");
    assert_eq!(term.to_string(), text);
    assert_eq!(from_term::<T>(term).expect("it is read"), value);
}

#[test]
fn values_have_the_terms_that_erlang_uses() {
    check(true, "true");
    check(-7_i8, "-7");
    check(u64::MAX, "16#FFFFFFFFFFFFFFFF");
    check(i128::MIN, "-16#80000000000000000000000000000000");
    check(1.5_f32, "1.5");
    check('ä', "<<\"ä\">>");
    check("text".to_owned(), "<<\"text\">>");
    check((), "ok");
    check(None::<u8>, "undefined");
    check(Some(3_u8), "3");
    check(vec![1, 2], "[1,2]");
    check((1, "x".to_owned()), "{1,<<\"x\">>}");
    check(Ok::<u8, String>(1), "{ok,1}");
    check(Err::<u8, String>("no".into()), "{error,<<\"no\">>}");
    check(Shape::Empty, "empty");
    check(Shape::One(None), "{one,undefined}");
    check(Shape::Two("a".into(), 5), "{two,<<\"a\">>,5}");
    let named = Shape::Named { at: (0.5, 2.0), text: vec!['a'] };
    check(named, "{named,#{at => {0.5,2.0},text => [<<\"a\">>]}}");
    check(BTreeMap::from([(Newtype(1), 2)].map(|(k, v)| (k.0, v))), "#{1 => 2}");
}

#[test]
fn terms_in_values_stay_as_they_are() {
    let reference = Reference::new(Atom::known("a@127.0.0.1"), 7, &[1, 2]).expect("two words");
    let value = Identifiers {
        pid: pid(),
        reference: reference.clone(),
        atom: Atom::known("true"),
        term: Term::Improper(vec![Term::from(1)], Box::new(Term::from(pid()))),
        maybe: Some(pid()),
    };
    let term = to_term(&value).expect("it has a term");
    let Term::Map(pairs) = &term else { panic!("{term}") };
    assert_eq!(pairs[0].1, Term::Pid(pid()));
    assert_eq!(pairs[1].1, Term::from(reference));
    assert_eq!(from_term::<Identifiers>(term).expect("it is read"), value);
    let error = from_term::<NodePid>(Term::from(7)).expect_err("it is a number");
    assert_eq!(error.to_string(), "7 came, and not a PID");
}

#[test]
fn forms_of_erlang_and_elixir_are_read() {
    let read = |text: Term| from_term::<String>(text).expect("it is text");
    assert_eq!(read(Term::atom("word")), "word");
    assert_eq!(read(Term::list("abc".bytes().map(Term::from))), "abc");
    assert_eq!(from_term::<f64>(Term::from(3)), Ok(3.0));
    assert_eq!(from_term::<Option<u8>>(Term::atom("nil")), Ok(None));
    assert_eq!(from_term::<Vec<u8>>(Term::from("ab")), Ok(b"ab".to_vec()));
    assert_eq!(from_term::<Result<(), String>>(Term::atom("ok")), Ok(Ok(())));
    assert_eq!(from_term::<(u8, u8)>(Term::list([1, 2].map(Term::from))), Ok((1, 2)));
    let map = [("unit", Term::atom("ok")), ("newtype", Term::from(4))];
    let lists = [("shapes", Term::List(Vec::new())), ("by_number", Term::Map(Vec::new()))];
    let with_texts = map.into_iter().chain(lists).map(|(key, value)| (Term::from(key), value));
    let whole = from_term::<Whole>(Term::Map(with_texts.collect())).expect("keys may be text");
    assert_eq!(whole.newtype, Newtype(4));
}

#[test]
fn what_does_not_fit_is_refused_with_both_sides() {
    let refused = |term, wanted: &str| {
        let error = from_term::<Shape>(term).expect_err("it is no shape").to_string();
        assert!(error.contains(wanted), "{error}");
    };
    refused(Term::atom("other"), "other");
    refused(Term::tuple([Term::atom("empty"), Term::from(1)]), "none is expected");
    refused(Term::atom("one"), "one is expected");
    refused(Term::tuple([Term::atom("two"), Term::from("a")]), "tuple variant");
    let long = [Term::atom("two"), Term::from("a"), Term::from(1), Term::from(2)];
    refused(Term::tuple(long), "expected");
    refused(Term::from(1), "enum");
    assert!(from_term::<u8>(Term::from(256)).is_err());
    assert!(from_term::<(u8, u8)>(Term::tuple([Term::from(1)])).is_err());
    assert!(to_term(&f64::NAN).is_err());
    let huge = crate::term::BigInteger::new(false, vec![1; 17]);
    assert!(from_term::<u128>(Term::Big(Box::new(huge))).is_err());
}

#[test]
fn versions_of_a_message_are_told_apart() {
    let now = message::<(String, u8)>("shop.job", 2).older(1, |text: String| (text, 1));
    let before = message::<String>("shop.job", 1).write(&"tea".to_owned()).expect("it is text");
    assert_eq!(now.read(before).expect("it is known"), ("tea".to_owned(), 1));
    let current = now.write(&("tea".to_owned(), 3)).expect("it has a term");
    assert_eq!(now.read(current.clone()).expect("it is its own"), ("tea".to_owned(), 3));
    let old = message::<String>("shop.job", 1);
    let refused = old.read(current.clone()).expect_err("it is newer");
    assert_eq!(refused.to_string(), "version 2 of the message shop.job came, and [1] are known");
    let other = message::<u8>("shop.other", 2).read(current.clone()).expect_err("its name");
    let MessageError::Name(back) = other else { panic!("{other}") };
    assert_eq!(back, current);
    let plain = now.read(Term::from(7)).expect_err("it is a number");
    assert!(matches!(plain, MessageError::Other(Term::Integer(7))));
    let wrong = now.write_older(2, &7).expect("it has a term");
    assert!(matches!(now.read(wrong), Err(MessageError::Content(_))));
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Empty),
        any::<Option<u64>>().prop_map(Shape::One),
        (any::<String>(), any::<i128>()).prop_map(|(text, number)| Shape::Two(text, number)),
        (-1e9..1e9, -1e9..1e9, any::<Vec<char>>())
            .prop_map(|(x, y, text)| Shape::Named { at: (x, y), text }),
    ]
}

/// Returns the most memory that the process has taken so far, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    kibibytes.expect("it has a number").parse::<usize>().expect("it is a number") << 10
}

/// Goal: neither a binary that is no sequence of this type nor the error takes many times its
/// memory.
#[test]
#[cfg(target_os = "linux")]
fn a_large_term_of_another_type_takes_little_memory() {
    let binary = Term::from(vec![1; 32 << 20]);
    let before = peak();
    from_term::<Vec<String>>(binary.clone()).expect_err("its items are numbers");
    let error = from_term::<u8>(binary).expect_err("it is text");
    assert!(error.to_string().len() <= 4096);
    assert!(peak() - before < 512 << 20, "it took {} bytes", peak() - before);
}

/// Goal: the limit for terms in other formats does not apply to terms.
#[test]
fn a_term_in_a_value_may_be_large() {
    let large = Term::from(vec![1; (64 << 20) + 1]);
    let term = to_term(&Some(&large)).expect("it has a term");
    assert!(term == large);
    assert!(from_term::<Term>(term).is_ok_and(|term| term == large));
}

proptest! {
    /// Also through bytes.
    #[test]
    fn values_come_back_as_they_were(
        shapes in prop::collection::vec(shapes(), 0..4),
        by_number in prop::collection::btree_map(any::<u8>(), any::<Result<bool, String>>(), 0..4),
        number in any::<u128>(),
    ) {
        let whole = Whole { unit: (), shapes, by_number, newtype: Newtype(number) };
        let term = to_term(&whole).expect("it has a term");
        let bytes = super::terms::encode(&term).expect("it can be sent");
        let term = super::terms::decode(&bytes, usize::MAX).expect("it can be read");
        prop_assert_eq!(from_term::<Whole>(term).expect("it is read"), whole);
    }
}

#[test]
fn a_message_with_a_version_is_that_of_the_protocol() {
    let messages = message::<u8>("shop.job", 2);
    let written = messages.write(&7).expect("it has a term");
    corpus::check("message", &[written], |word| messages.read(word).is_ok());
}
