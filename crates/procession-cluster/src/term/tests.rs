//! Terms are read as they were written, and no bytes do harm.

use proptest::prelude::*;

use super::{Atom, BigInteger, Bits, DecodeError, EncodeError, NodePid, Port, Reference, Term};
use crate::term::decode::Reader;
use crate::term::encode::Writer;

const MEMORY: usize = 1 << 20;

fn written(term: &Term) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).term(term).map(|()| bytes)
}

fn read(bytes: &[u8]) -> Result<Term, DecodeError> {
    let mut reader = Reader::new(bytes, &[], MEMORY);
    let term = reader.term()?;
    reader.end().map(|()| term)
}

fn atom() -> impl Strategy<Value = Atom> {
    "[a-zä ]{0,255}".prop_map(|text| Atom::new(text).expect("it is short"))
}

fn pid() -> impl Strategy<Value = NodePid> {
    (atom(), any::<[u32; 3]>()).prop_map(|(node, [id, serial, creation])| NodePid {
        node,
        id,
        serial,
        creation,
    })
}

fn term() -> impl Strategy<Value = Term> {
    let leaf = prop_oneof![
        atom().prop_map(Term::Atom),
        any::<i64>().prop_map(Term::Integer),
        (-300_i64..300).prop_map(Term::Integer),
        (any::<bool>(), proptest::collection::vec(any::<u8>(), 9..300)).prop_filter_map(
            "a small integer has another form",
            |(sign, digits)| {
                let big = BigInteger::new(sign, digits);
                big.as_i64().is_none().then(|| Term::Big(Box::new(big)))
            }
        ),
        any::<f64>().prop_filter("it is a number", |x| x.is_finite()).prop_map(Term::Float),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Term::from),
        (proptest::collection::vec(any::<u8>(), 1..9), 1_u8..8)
            .prop_map(|(bytes, last)| Term::Bits(Bits::new(bytes, last).expect("it has bits"))),
        pid().prop_map(Term::Pid),
        (atom(), any::<u32>(), proptest::collection::vec(any::<u32>(), 1..=5)).prop_map(
            |(node, creation, words)| {
                Reference::new(node, creation, &words).expect("it has 1 to 5 words").into()
            }
        ),
        (atom(), any::<u64>(), any::<u32>())
            .prop_map(|(node, id, creation)| Term::Port(Box::new(Port { node, id, creation }))),
        (atom(), atom(), any::<u8>()).prop_map(|function| Term::Export(Box::new(function))),
    ];
    leaf.prop_recursive(5, 400, 300, |inner| {
        let many = || proptest::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            many().prop_map(Term::List),
            proptest::collection::vec(inner.clone(), 0..300).prop_map(Term::Tuple),
            many().prop_map(Term::Tuple),
            (proptest::collection::vec(inner.clone(), 1..6), atom())
                .prop_map(|(items, tail)| Term::Improper(items, Box::new(tail.into()))),
            many().prop_map(|values| {
                let pair = |(n, value)| (Term::from(n as u32), value);
                Term::Map(values.into_iter().enumerate().map(pair).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn a_term_is_read_as_it_was_written(term in term()) {
        prop_assert_eq!(read(&written(&term).expect("it can be written")), Ok(term));
    }

    #[test]
    fn a_term_that_is_cut_is_incomplete(term in term(), part in 0.0..1.0) {
        let bytes = written(&term).expect("it can be written");
        let cut = (bytes.len() as f64 * part) as usize;
        prop_assert_eq!(read(&bytes[..cut]), Err(DecodeError::Incomplete));
    }

    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(term) = read(&bytes) {
            // A map may have come with a key twice, which is not sent on.
            if let Ok(again) = written(&term) {
                prop_assert_eq!(read(&again), Ok(term));
            }
        }
    }

    #[test]
    fn a_changed_byte_does_no_harm(term in term(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = written(&term).expect("it can be written");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        drop(read(&bytes));
    }
}

#[test]
fn nothing_is_allocated_for_a_count_without_items() {
    // A list, a large tuple, a map and a large integer of four billion items.
    for tag in [108, 105, 116, 111] {
        assert_eq!(read(&[tag, 255, 255, 255, 255, 0]), Err(DecodeError::Incomplete));
    }
    // Empty lists, which take more memory than bytes.
    let mut many = vec![105, 0, 1, 0, 0];
    many.extend([106; 1 << 16]);
    assert_eq!(read(&many), Err(DecodeError::TooLarge));
}

#[test]
fn nesting_is_limited_in_both_directions() {
    let deep = |levels| (0..levels).fold(Term::from(1), |inner, _| Term::tuple([inner]));
    let fits = written(&deep(127)).expect("it is not too deep");
    assert_eq!(read(&fits), Ok(deep(127)));
    assert_eq!(written(&deep(128)), Err(EncodeError::TooDeep));
    let mut bytes = [104, 1].repeat(1 << 16);
    bytes.push(106);
    assert_eq!(read(&bytes), Err(DecodeError::TooDeep));
}

/// Goal: a list in parts is one list, however many these are, and its items nest as in any other.
#[test]
fn a_list_in_parts_is_read_as_one() {
    const PARTS: usize = 5000;
    // A list of one item has the next one as its tail.
    let parts = |item: &[u8]| [&[108, 0, 0, 0, 1], item].concat().repeat(PARTS);
    let list = |tail: &[u8]| [&parts(&[97, 7]), tail].concat();
    let sevens = vec![Term::from(7); PARTS];
    assert_eq!(read(&list(&[106])), Ok(Term::List(sevens.clone())));
    assert_eq!(read(&list(&[107, 0, 1, 7])), Ok(Term::List(vec![Term::from(7); PARTS + 1])));
    assert_eq!(read(&list(&[97, 8])), Ok(Term::Improper(sevens, Box::new(Term::from(8)))));
    assert_eq!(read(&list(&[])), Err(DecodeError::Incomplete));
    let deep = |levels| [[104, 1].repeat(levels), vec![97, 7]].concat();
    let nested = |levels| [&parts(&deep(levels))[..], &[106]].concat();
    assert!(read(&nested(2)).is_ok());
    assert_eq!(read(&nested(126)), Err(DecodeError::TooLarge));
    assert_eq!(read(&nested(127)), Err(DecodeError::TooDeep));
}

#[test]
fn what_would_end_the_connection_is_not_written() {
    let twice = Term::Map(vec![(Term::atom("a"), 1.into()), (Term::atom("a"), 2.into())]);
    assert_eq!(written(&twice), Err(EncodeError::DuplicateKey));
    assert_eq!(written(&Term::from(f64::NAN)), Err(EncodeError::NotFinite));
    let huge = BigInteger::new(false, vec![1; (1 << 16) + 1]);
    assert_eq!(written(&Term::Big(Box::new(huge))), Err(EncodeError::TooLong));
    // An integer has one form, so that keys can be compared.
    let small = Term::Big(Box::new(BigInteger::new(true, vec![5, 0, 0])));
    assert_eq!(written(&small), written(&Term::from(-5)));
}

/// The bytes are from `term_to_binary` of OTP 25, without the version.
#[test]
fn terms_of_the_beam_are_read() {
    // A list of small integers arrives as a string.
    assert_eq!(read(b"k\0\x03abc"), Ok(Term::list([97.into(), 98.into(), 99.into()])));
    // Atoms of Latin-1, short and long.
    assert_eq!(read(b"s\x01\xe4"), Ok(Term::atom("ä")));
    assert_eq!(read(b"d\0\x02ok"), Ok(Term::atom("ok")));
    assert_eq!(read(b"F\x3f\xf8\0\0\0\0\0\0"), Ok(Term::from(1.5)));
    // -1 bsl 70.
    let mut digits = vec![0; 9];
    digits[8] = 64;
    let big = Term::Big(Box::new(BigInteger::new(true, digits)));
    assert_eq!(read(b"n\x09\x01\0\0\0\0\0\0\0\0\x40"), Ok(big));
    // The least integer of 64 bits.
    assert_eq!(read(b"n\x08\x01\0\0\0\0\0\0\0\x80"), Ok(Term::from(i64::MIN)));
    assert_eq!(written(&Term::from(i64::MIN)), Ok(b"n\x08\x01\0\0\0\0\0\0\0\x80".to_vec()));
    // Compressed terms are refused.
    assert_eq!(read(b"P\0\0\0\x05x"), Err(DecodeError::Tag(80)));
}

#[test]
fn terms_print_as_erlang_prints_them() {
    let term = Term::tuple([
        Term::atom("ok"),
        Term::atom("Not plain"),
        Term::list([1.into(), Term::from(2.0)]),
        Term::Map(vec![(Term::from("key"), Term::from(vec![0, 255]))]),
        Term::Improper(vec![1.into()], Box::new(2.into())),
        Term::Bits(Bits::new([255, 160], 3).expect("it has bits")),
    ]);
    assert_eq!(
        term.to_string(),
        "{ok,'Not plain',[1,2.0],#{<<\"key\">> => <<0,255>>},[1|2],<<255,5:3>>}"
    );
}

/// Goal: what a term takes outside of its place in a list also counts.
#[test]
fn boxes_and_atoms_count_as_memory() {
    let known = [Atom::known("lists")];
    // A function by references to atoms, an integer of nine bytes, and an atom.
    let items: [(&[u8], usize); 3] = [
        (&[113, 82, 0, 82, 0, 97, 1], size_of::<(Atom, Atom, u8)>()),
        (&[110, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9], size_of::<BigInteger>() + 9),
        (&[119, 1, b'a'], 32),
    ];
    for (item, outside) in items {
        let read = |count: usize| {
            let head = [&[108][..], &(count as u32).to_be_bytes()].concat();
            let bytes = [head, item.repeat(count), vec![106]].concat();
            Reader::new(&bytes, &known, MEMORY).term()
        };
        let most = MEMORY / (size_of::<Term>() + outside);
        assert_eq!(read(most + 1).err(), Some(DecodeError::TooLarge));
        let term = read(most * 9 / 10).expect("it has room");
        let bytes = term.memory_bytes();
        assert!((MEMORY * 8 / 10..=2 * MEMORY).contains(&bytes), "{bytes}");
    }
}

/// Returns `true` for a term with a notation that means it.
fn has_notation(term: &Term) -> bool {
    match term {
        Term::Pid(_) | Term::Reference(_) | Term::Port(_) | Term::Fun(_) => false,
        Term::List(items) | Term::Tuple(items) => items.iter().all(has_notation),
        Term::Improper(items, tail) => items.iter().all(has_notation) && has_notation(tail),
        Term::Map(pairs) => {
            pairs.iter().all(|(key, value)| has_notation(key) && has_notation(value))
        }
        _ => true,
    }
}

proptest! {
    /// Of bits, only those that count have a notation, so the texts are compared.
    #[test]
    fn a_term_is_read_from_its_notation(term in term().prop_filter("it has one", has_notation)) {
        let text = term.to_string();
        let again = text.parse::<Term>().expect("it is its notation");
        prop_assert_eq!(again.to_string(), text);
    }

    #[test]
    fn no_text_does_harm(text in "[a-z0-9{}\\[\\]<>#\"'|,:=./ \\\\-]{0,40}") {
        if let Ok(term) = text.parse::<Term>() {
            drop(term);
        }
    }
}

#[test]
fn notations_are_read_with_spaces_and_strings() {
    for (text, written) in [
        (" { ok , [ 1 , 2 | tail ] } ", "{ok,[1,2|tail]}"),
        ("\"hi\"", "[104,105]"),
        ("#{fun => fun lists:map/2}", "#{fun => fun lists:map/2}"),
        ("<<1,2:3>>", "<<1,2:3>>"),
        ("-16#FFFFFFFFFFFFFFFFFF", "-16#FFFFFFFFFFFFFFFFFF"),
        ("16#ff", "255"),
        ("'no room'", "'no room'"),
    ] {
        let term = text.parse::<Term>().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(term.to_string(), written);
    }
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    for text in [
        "",
        "{ok",
        "Ok",
        "ok ok",
        "<1.2.3>",
        "<<256>>",
        "<<8:3>>",
        "1.e5x",
        "99999999999999999999",
        &deep,
    ] {
        assert!(text.parse::<Term>().is_err(), "{text}");
    }
}
