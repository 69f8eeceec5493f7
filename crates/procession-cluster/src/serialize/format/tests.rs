//! Messages in the formats of other crates, and bytes of nodes that mean harm.

use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::Format;
use super::bytes::MESSAGE_MAX;
use crate::serialize::{ConvertError, MessageError, message};
use crate::term::{Atom, NodePid, Term};

const BYTES: [Format; 2] = [Format::Postcard, Format::MessagePack];
const ALL: [Format; 3] = [Format::Term, Format::Postcard, Format::MessagePack];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Step {
    Wait,
    Say(String),
    Move { by: (i16, i128), with: Option<Box<Step>> },
    All(Vec<Step>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Job {
    item: String,
    count: u32,
    steps: Vec<Step>,
    notes: BTreeMap<u64, Vec<u8>>,
    worker: Option<NodePid>,
}

/// The job of the next release.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct LaterJob {
    urgent: bool,
    item: String,
    #[serde(default)]
    place: Vec<Place>,
    count: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Place {
    shelf: u8,
    words: BTreeMap<String, Option<f64>>,
}

/// What an earlier release knows of the type.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct EarlierJob {
    item: String,
    #[serde(default)]
    price: Option<u32>,
    count: u32,
}

fn later() -> LaterJob {
    let words = BTreeMap::from([("left".to_owned(), Some(1.5)), ("back".to_owned(), None)]);
    let place = vec![Place { shelf: 3, words }];
    LaterJob { urgent: true, item: "tea".into(), place, count: 2 }
}

fn refused<T: Debug>(result: Result<T, ConvertError>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn an_older_reader_takes_a_message_with_more_fields_if_they_have_names() {
    for format in [Format::Term, Format::MessagePack] {
        let term = message::<LaterJob>("job", 1).in_format(format).write(&later());
        let earlier = message::<EarlierJob>("job", 1).in_format(format);
        let job = earlier.read(term.expect("it is written")).expect("other fields are ignored");
        assert_eq!(job, EarlierJob { item: "tea".into(), price: None, count: 2 });
        // The reverse needs a default.
        let back = earlier.write(&job).expect("it is written");
        let refused = message::<LaterJob>("job", 1).in_format(format).read(back);
        let Err(MessageError::Content(error)) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("urgent"), "{error}");
    }
}

#[test]
fn postcard_needs_a_version_for_more_fields() {
    let term = message::<LaterJob>("job", 2).in_format(Format::Postcard).write(&later());
    let term = term.expect("it is written");
    let earlier = message::<EarlierJob>("job", 1).in_format(Format::Postcard);
    let refused = earlier.read(term).expect_err("it is newer");
    assert_eq!(refused.to_string(), "version 2 of the message job came, and [1] are known");
    let upgrade = |old: EarlierJob| LaterJob {
        urgent: false,
        item: old.item,
        place: Vec::new(),
        count: old.count,
    };
    let now = message::<LaterJob>("job", 2).older(1, upgrade).in_format(Format::Postcard);
    let old = EarlierJob { item: "tea".into(), price: Some(7), count: 2 };
    let read = now.read(earlier.write(&old).expect("it is written")).expect("it is known");
    assert_eq!((read.item.as_str(), read.count), ("tea", 2));
    let down = now.write_older(1, &old).expect("it is written");
    assert_eq!(earlier.read(down).expect("it is its own"), old);
}

#[test]
fn a_message_in_another_format_is_refused() {
    for wrote in ALL {
        let term = message::<Step>("step", 1).in_format(wrote).write(&Step::Wait);
        let term = term.expect("it is written");
        for reads in ALL {
            let read = message::<Step>("step", 1).in_format(reads).read(term.clone());
            match read {
                Ok(step) => assert_eq!((wrote, step), (reads, Step::Wait)),
                Err(MessageError::Format { name: "step", came, expected }) => {
                    assert_ne!(wrote, reads);
                    assert_eq!((came.as_str(), expected), (&*wrote.to_string(), reads));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    // A later release may have others.
    let words = [Term::atom("$message"), "step".into(), 1.into(), Term::atom("json"), "{}".into()];
    let refused = message::<Step>("step", 1).read(Term::tuple(words)).expect_err("no such format");
    let text = "the message step came in the format json, and term is expected";
    assert_eq!(refused.to_string(), text);
}

#[test]
fn each_older_version_may_have_a_format() {
    let now = message::<(String, u8)>("job", 3)
        .in_format(Format::MessagePack)
        .older_in(Format::Term, 1, |text: String| (text, 1))
        .older_in(Format::Postcard, 2, |(text, _): (String, u64)| (text, 2));
    let first = now.write_older(1, &"tea").expect("it is written");
    assert_eq!(first.to_string(), r#"{'$message',<<"job">>,1,<<"tea">>}"#);
    assert_eq!(now.read(first).expect("it is known"), ("tea".into(), 1));
    let second = now.write_older(2, &("tea", 9)).expect("it is written");
    let wrong = message::<(String, u64)>("job", 2).read(second.clone());
    assert!(matches!(wrong, Err(MessageError::Format { .. })), "{wrong:?}");
    assert_eq!(now.read(second).expect("it is known"), ("tea".into(), 2));
    let third = now.write(&("tea".into(), 3)).expect("it is written");
    assert!(third.to_string().contains("3,message_pack,"), "{third}");
    assert_eq!(now.read(third).expect("it is its own"), ("tea".into(), 3));
}

#[test]
fn what_is_behind_a_message_or_missing_is_refused() {
    for format in BYTES {
        let term = format.write(&7_u8).expect("it is written");
        let bytes = term.as_bytes().expect("it has bytes");
        let more = Term::from([bytes, &[0, 0]].concat());
        assert_eq!(refused(format.read::<u8>(more)), "2 bytes are behind the message");
        refused(format.read::<u8>(Term::from(Vec::new())));
        let plain = refused(format.read::<u8>(Term::from(7)));
        assert_eq!(plain, "7 came, and not bytes");
    }
}

#[test]
fn a_message_that_is_too_long_is_neither_written_nor_read() {
    let text = format!("the message has more than {MESSAGE_MAX} bytes");
    let long = "x".repeat(MESSAGE_MAX);
    for format in BYTES {
        assert_eq!(refused(format.write(&long)), text);
        let content = Term::from(vec![0; MESSAGE_MAX + 1]);
        assert_eq!(refused(format.read::<String>(content)), text);
        let fits = &long[..MESSAGE_MAX - 8];
        let term = format.write(fits).expect("it fits");
        assert_eq!(format.read::<String>(term).expect("it fits").len(), fits.len());
    }
}

/// A list by links, each of which has the next one.
#[derive(Debug, Serialize, Deserialize)]
struct Link {
    next: Option<Box<Link>>,
}

#[test]
fn nesting_is_limited() {
    let text = "the message has too many levels";
    // Without a limit, these bytes need more stack than there is: in postcard `Some` and lists of
    // three, in MessagePack arrays of one.
    let deep = |byte| Term::from(vec![byte; 1 << 20]);
    assert_eq!(refused(Format::Postcard.read::<Link>(deep(1))), text);
    assert_eq!(refused(Format::Postcard.read::<Step>(deep(3))), text);
    assert_eq!(refused(Format::MessagePack.read::<Link>(deep(0x91))), text);
    let link = |levels| {
        (0..levels).fold(Link { next: None }, |next, _| Link { next: Some(Box::new(next)) })
    };
    for format in BYTES {
        // A level for the structure and one for the option.
        let fits = format.write(&link(63)).expect("it is written");
        format.read::<Link>(fits).expect("it is not too deep");
        let deep = format.write(&link(64)).expect("it is written");
        assert_eq!(refused(format.read::<Link>(deep)), text);
    }
}

/// An item that takes no bytes, and much memory.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Room {
    #[serde(skip)]
    _room: [u64; 32],
}

#[test]
fn items_without_bytes_are_counted() {
    // The greatest length, and nothing behind it.
    let length = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let units = Format::Postcard.read::<Vec<()>>(Term::from(length.clone()));
    assert_eq!(refused(units), "the message has too many items");
    let rooms = Format::Postcard.read::<Vec<Room>>(Term::from(length));
    assert_eq!(refused(rooms), "the message has too many items");
    let fits = Format::Postcard.write(&vec![(); 4096]).expect("it is written");
    assert_eq!(Format::Postcard.read::<Vec<()>>(fits).expect("they are few").len(), 4096);
    for format in BYTES {
        // A byte for each in MessagePack, and none in postcard.
        let many: Vec<_> = (0..300_000).map(|_| (0_u8, Room::default())).collect();
        let term = format.write(&many).expect("it is written");
        let error = refused(format.read::<Vec<(u8, Room)>>(term));
        assert_eq!(error, "the message has too many bytes of items", "{format}");
    }
}

#[test]
fn a_length_without_bytes_makes_no_room() {
    // Strings, bytes, sequences and maps of four billion items.
    let claims: [(Format, &[u8]); 5] = [
        (Format::Postcard, &[0xff, 0xff, 0xff, 0xff, 0x0f, 1]),
        (Format::MessagePack, &[0xdb, 0xff, 0xff, 0xff, 0xff, 1]),
        (Format::MessagePack, &[0xc6, 0xff, 0xff, 0xff, 0xff, 1]),
        (Format::MessagePack, &[0xdd, 0xff, 0xff, 0xff, 0xff, 1]),
        (Format::MessagePack, &[0xdf, 0xff, 0xff, 0xff, 0xff, 1]),
    ];
    for (format, bytes) in claims {
        let bytes = || Term::from(bytes.to_vec());
        refused(format.read::<String>(bytes()));
        refused(format.read::<Vec<u64>>(bytes()));
        refused(format.read::<BTreeMap<u8, u64>>(bytes()));
        refused(format.read::<Term>(bytes()));
        refused(format.read::<Job>(bytes()));
    }
}

fn step() -> impl Strategy<Value = Step> {
    let leaf = prop_oneof![Just(Step::Wait), any::<String>().prop_map(Step::Say)];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            (any::<(i16, i128)>(), proptest::option::of(inner.clone()))
                .prop_map(|(by, with)| Step::Move { by, with: with.map(Box::new) }),
            proptest::collection::vec(inner, 0..5).prop_map(Step::All),
        ]
    })
}

prop_compose! {
    fn job()(
        item: String,
        count: u32,
        steps in proptest::collection::vec(step(), 0..4),
        notes in proptest::collection::btree_map(any::<u64>(), any::<Vec<u8>>(), 0..4),
        id in proptest::option::of(any::<u32>()),
    ) -> Job {
        let node = Atom::known("a@127.0.0.1");
        let worker = id.map(|id| NodePid { node, id, serial: 0, creation: 7 });
        Job { item, count, steps, notes, worker }
    }
}

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_written(job in job()) {
        for format in ALL {
            let jobs = message::<Job>("job", 1).in_format(format);
            let term = jobs.write(&job).expect("it is written");
            prop_assert_eq!(&jobs.read(term).expect("it is read"), &job);
        }
    }

    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in BYTES {
            drop(format.read::<Job>(Term::from(bytes.clone())));
            drop(format.read::<Vec<Link>>(Term::from(bytes.clone())));
            drop(format.read::<Term>(Term::from(bytes.clone())));
            drop(format.read::<Vec<BTreeMap<(), Room>>>(Term::from(bytes.clone())));
        }
    }

    #[test]
    fn a_changed_byte_does_no_harm(
        job in job(),
        at in any::<prop::sample::Index>(),
        byte: u8,
        cut in any::<bool>(),
    ) {
        for format in BYTES {
            let term = format.write(&job).expect("it is written");
            let mut bytes = term.as_bytes().expect("it has bytes").to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if cut {
                bytes.truncate(at);
            }
            drop(format.read::<Job>(Term::from(bytes)));
        }
    }
}
