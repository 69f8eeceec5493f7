//! The functions of programs against Lua's own: texts are longer than Lua's matcher is used for.

use std::sync::Arc;

use mlua::Lua;
use procession::Scheduler;

use super::{Found, search};
use crate::budget::Budget;
use crate::guest::Guests;
use crate::library;
use crate::program::Program;

const CASES: u64 = 400;

/// Returns a text that shows the results of a call, or that it failed.
const CALL: &str = "
    local name, text, pattern, third = ...
    local results
    if name == 'gmatch' then
      results = { pcall(function()
        local all = {}
        for a, b in string.gmatch(text, pattern) do
          all[#all + 1] = tostring(a) .. '|' .. tostring(b)
          if #all == 50 then break end
        end
        return table.concat(all, ',')
      end) }
    else
      if third == 'table' then third = { a = 'x', b = false, [2] = 'y', ['a1'] = 7 } end
      if third == 'function' then third = function(a, b) return b and a .. '=' .. tostring(b) or nil end end
      results = table.pack(pcall(string[name], text, pattern, third))
    end
    if not results[1] then return 'failed' end
    for i = 2, results.n or #results do results[i - 1] = tostring(results[i]) end
    results[#results] = nil
    return table.concat(results, ';')";

/// A generator of random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// Returns a pattern with at most two repetitions: Lua would take minutes for more.
fn pattern(dice: &mut Dice) -> String {
    let pieces = [
        "a", "b", ".", "%a", "%d", "%.", "[ab]", "[^a]", "[%a-]", "[a-b]", "(", ")", "()", "$",
        "^", "%1", "%f[b]", "%bab", "%", "[", "%W", "[]]", "%s", "(a)", "(.)", "(a)()(.)",
    ];
    let mut text = String::new();
    let mut repetitions = 0;
    for _ in 0..1 + dice.below(5) {
        text += dice.pick(&pieces);
        if repetitions < 2 && dice.below(3) == 0 {
            text += dice.pick(&["*", "+", "-", "?"]);
            repetitions += 1;
        }
    }
    text
}

/// On a test clock, time stands still, so that the limit of time ends no match on a busy machine.
#[test]
fn matches_are_those_of_lua() {
    let scheduler = Scheduler::builder().test_clock().build();
    let scheduler = scheduler.expect("the test clock needs no threads");
    scheduler.block_on(scheduler.spawn(async { compare() })).expect("they are the same");
}

fn compare() {
    let program = Program::load("test", "").expect("the source is valid Lua");
    let budget = Arc::new(Budget::new(10_000));
    let bounds = program.inner().permissions.clone().into();
    let guest =
        library::open(&Guests, &program, &bounds, usize::MAX, &budget).expect("the program runs");
    let raw = Lua::new();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut failed = 0;
    for case in 0..CASES {
        let part: String = (0..20).map(|_| dice.pick(&["a", "b", "1", ".", " ", "]"])).collect();
        let text = part.repeat(20);
        let pattern = pattern(&mut dice);
        for (name, third) in [
            ("find", "3"),
            ("match", "-30"),
            ("gmatch", ""),
            ("gsub", "<%0>"),
            ("gsub", "%1"),
            ("gsub", "function"),
            ("gsub", "table"),
        ] {
            budget.renew();
            let call = |lua: &Lua| {
                let chunk = lua.load(CALL);
                chunk.call::<String>((name, &*text, &*pattern, third)).expect("it catches errors")
            };
            let expected = call(&raw);
            failed += u32::from(expected == "failed");
            assert_eq!(call(&guest), expected, "case {case}: {name} {pattern:?} in {part:?}");
        }
    }
    assert!(failed > 100 && u64::from(failed) < CASES * 3, "{failed} calls failed");
}

#[test]
fn a_match_with_too_many_ways_is_refused() {
    let (text, pattern) = ("a".repeat(40), "a?".repeat(40) + &"a".repeat(40) + "b");
    let search = |text: &str, pattern: &str| {
        let mut steps = 0;
        (search(text.as_bytes(), pattern.as_bytes(), 0, None, false, &mut steps), steps)
    };
    let (error, _) = search(&text, &pattern);
    assert_eq!(error, Err("pattern too complex for this text".to_owned()));
    // Work that is shared by many positions is done in parts.
    let text = "a".repeat(2000);
    let (found, steps) = search(&text, "a*b");
    assert!(matches!(found, Ok(Found::Paused(_))) && steps < 210_000, "{found:?} {steps}");
    // One attempt has a bound for a text of any length.
    let text = "a".repeat(20 << 20);
    let (error, steps) = search(&text, ".-.-b");
    assert!(error.is_err() && steps <= 30_000_001, "{error:?} {steps}");
    assert_eq!(search(&text, "^?.-$").0, Ok(Found::Match(0, text.len(), vec![])));
}
