//! What is on its way from one host to another.

use rustix::io::Errno;

use crate::faults::Fault;
use crate::net::Net;
use crate::net::cargo::{Cargo, Flight};
use crate::net::moment::Moment;
use crate::time::{MS, NEVER, SECOND, US, duration};

/// Nanoseconds that a flight takes at least: within a host, and between hosts.
const LATENCY: [u64; 2] = [5 * US, 50 * US];
/// By how much a flight may be late.
const DELAYS: [u64; 6] = [0, 100 * US, MS, 20 * MS, 300 * MS, 3 * SECOND];
/// For how long a fault cuts the way between two hosts: one way, and then both ways.
const CUTS: [u64; 7] = [0, MS, 100 * MS, 2 * SECOND, 5 * MS, 300 * MS, 10 * SECOND];
/// The longest time until TCP sends a segment again.
const AGAIN_MAX: u64 = 120 * SECOND;
impl Net {
    /// Sends something. Returns when it arrives, if it does.
    pub(super) fn send(
        &mut self,
        moment: &mut Moment<'_>,
        (from, to): (usize, usize),
        cargo: Cargo,
    ) -> u64 {
        let late = self.late(moment, from, to);
        if from != to
            && let Some(cut) = moment.fault(Fault::Partition, &CUTS)
        {
            let until = moment.now + cut;
            let is_one_way = CUTS[1..4].contains(&cut);
            self.cut(from, to, until);
            if !is_one_way {
                self.cut(to, from, until);
            }
            let (one, other) = (self.name(from).to_owned(), self.name(to).to_owned());
            moment.tell(|| {
                let way = if is_one_way { "to" } else { "and" };
                format!("the way from {one} {way} {other} is cut for {}", duration(cut))
            });
        }
        let due = moment.now + LATENCY[usize::from(from != to)] + late;
        self.put(due, Flight { from, to, again: 0, cargo });
        due
    }

    fn late(&self, moment: &mut Moment<'_>, from: usize, to: usize) -> u64 {
        let late = moment.fault(Fault::SlowNetwork, &DELAYS).unwrap_or(0);
        if late > 0 {
            let (one, other) = (self.name(from).to_owned(), self.name(to).to_owned());
            let late = duration(late);
            moment.tell(|| format!("what {one} sends to {other} is {late} late"));
        }
        late
    }

    /// Lets something arrive at a time that is known already.
    pub(super) fn follow(&mut self, (from, to): (usize, usize), cargo: Cargo, due: u64) {
        self.put(due, Flight { from, to, again: 0, cargo });
    }

    /// Lets a flight arrive at a time.
    fn put(&mut self, due: u64, flight: Flight) {
        self.next_flight += 1;
        self.flights.insert((due, self.next_flight), flight);
    }

    /// Lets what is on its way arrive soon: everything, or what is on one way.
    pub(super) fn hasten(&mut self, now: u64, way: Option<(usize, usize)>) {
        for ((due, _), mut flight) in std::mem::take(&mut self.flights) {
            let soon = now + LATENCY[usize::from(flight.from != flight.to)];
            let is_timer = matches!(flight.cargo, Cargo::Probe { .. });
            if due > soon && !is_timer && way.is_none_or(|way| way == (flight.from, flight.to)) {
                // It is one more repetition, so that no attempt fails sooner.
                flight.again = flight.again.saturating_sub(1);
                self.put(soon, flight);
            } else {
                self.put(due, flight);
            }
        }
        self.hasten_segments(now);
    }

    /// A flight arrives, unless the way is cut.
    pub(super) fn arrive(&mut self, moment: &mut Moment<'_>, mut flight: Flight) {
        moment.chance.digest(moment.now ^ (flight.to as u64) << 48);
        let to = flight.to;
        // The wait after the last repetition ends with nothing.
        let is_over = flight.cargo.retries().is_some_and(|(_, retries)| flight.again > retries);
        if is_over || self.is_cut(flight.from, to, moment.now) {
            return self.repeat(moment, flight);
        }
        match &mut flight.cargo {
            Cargo::Request { client, to: address, is_ignored } => {
                if !self.request(moment, *client, to, *address, is_ignored) {
                    self.repeat(moment, flight);
                }
            }
            &mut Cargo::Answer { client, answer } => self.answer(moment, client, answer),
            &mut Cargo::Segment { from } => self.arrive_segment(moment, from),
            &mut Cargo::Reset { to } => self.break_stream(to, Errno::CONNRESET),
            Cargo::Datagram { from, to: address, bytes } => {
                self.deliver_datagram(moment, to, *from, *address, bytes);
            }
            &mut Cargo::Probe { of, count } => self.probe(moment, of, count),
            &mut Cargo::Unreachable { socket, peer } => self.refuse_datagrams(to, socket, peer),
        }
    }

    /// Sends something again, later each time, until the last attempt fails.
    fn repeat(&mut self, moment: &mut Moment<'_>, mut flight: Flight) {
        let Some((first, retries)) = flight.cargo.retries() else { return };
        flight.again += 1;
        if flight.again <= retries + 1 {
            let wait = (first << (flight.again - 1)).min(AGAIN_MAX);
            let left = match flight.cargo {
                Cargo::Segment { from } => self.time_left(from, flight.again == 1, moment.now),
                _ => None,
            };
            if left != Some(0) {
                return self.put(moment.now + wait.min(left.unwrap_or(NEVER)), flight);
            }
        }
        match flight.cargo {
            Cargo::Request { client, .. } | Cargo::Answer { client, .. } => {
                self.fail_to_connect(client, Errno::TIMEDOUT);
                if let Cargo::Answer { answer: Ok(server), .. } = flight.cargo {
                    self.break_stream(server, Errno::TIMEDOUT);
                }
            }
            Cargo::Segment { from } => self.break_stream(from, Errno::TIMEDOUT),
            Cargo::Reset { .. }
            | Cargo::Probe { .. }
            | Cargo::Datagram { .. }
            | Cargo::Unreachable { .. } => {}
        }
    }
}
