//! The link of a process with a process of another node, and the signals of each side about the
//! link.
//!
//! # Link protocol
//!
//! ## Problem
//! A process unlinks and links again, while the other process unlinks the old link. This unlink
//! arrives when the new link is there, and ends the new link on this side. On the other side, the
//! new link arrives after the unlink, and stays: half a link is left.
//!
//! ## States
//! Each side is linked or not, under the lock of its process. A side that has unlinked is also
//! `unlinking`, with a number.
//!
//! ## Steps
//! Each is under the lock, with the place of its signal in the queue of `scheduler/nodes.rs`:
//! - `Link`: if it is not linked, links, ends `unlinking`, and queues a link.
//! - `Unlink`: if it is linked, ends that, begins `unlinking`, and queues an unlink.
//! - `TakeLink`, when a link arrives: links, unless the side is `unlinking`.
//! - `TakeUnlink`, when an unlink arrives: ends the link, and queues an acknowledgement.
//! - `TakeAck`: ends `unlinking`, if the number is the number of the last unlink.
//! - `TakeEnd`, when the other process has ended or its node is gone: ends the link.
//!
//! ## Why it works
//! Signals of two processes stay in order. If a side that is `unlinking` ignores a link, the link
//! was queued before the acknowledgement, so it was made before `TakeUnlink`, which has ended it.
//! So neither side has the link. If the link was made after `TakeUnlink`, it arrives after the
//! acknowledgement, and is not ignored. A side that links again before it hears of the
//! acknowledgement is linked, and a link of the other side changes nothing there.
//!
//! The change and the place in the queue are one step. Otherwise the process could link between the
//! two halves of `TakeUnlink`, which another thread carries out. Its link would stand before the
//! acknowledgement, and be ignored, although it was made after the unlink.
//!
//! OTP has the same protocol, with the signals `LINK`, `UNLINK_ID` and `UNLINK_ID_ACK`.
//!
//! ## Checked by
//! `models::links_and_unlinks_cross`, `models::a_second_unlink_waits_for_its_own_answer`,
//! `models::canary_told_in_a_second_step`, `models::canary_link_while_unlinking`,
//! `models::canary_any_answer`; `contracts::remote` and the `pids` of `procession-cluster`, with
//! random orders.

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `TakeLink` does not look whether the side is `unlinking`.
    pub const LINK_WHILE_UNLINKING: u8 = 1;
    /// `TakeAck` does not look at the number.
    pub const ANY_ANSWER: u8 = 2;
}

/// A signal from one side of a link to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkNews {
    /// The link exists.
    Linked,
    /// The link is removed, under this number.
    Unlinked(u64),
    /// The removal with this number has been seen.
    Acknowledged(u64),
}

/// One side of a link.
#[derive(Debug, Default)]
pub struct RemoteLink<const MUTATION: u8 = { mutation::SOUND }> {
    is_linked: bool,
    unlinking: Option<u64>,
}

impl<const MUTATION: u8> RemoteLink<MUTATION> {
    /// Returns `true` if this side has the link.
    pub fn is_linked(&self) -> bool {
        self.is_linked
    }

    /// Returns `true` if there is nothing to remember.
    pub fn is_over(&self) -> bool {
        !self.is_linked && self.unlinking.is_none()
    }

    /// `Link`.
    pub fn link(&mut self) -> Option<LinkNews> {
        if std::mem::replace(&mut self.is_linked, true) {
            return None;
        }
        self.unlinking = None;
        Some(LinkNews::Linked)
    }

    /// `Unlink`, with a number that no other unlink of the process has.
    pub fn unlink(&mut self, number: u64) -> Option<LinkNews> {
        if !self.take_end() {
            return None;
        }
        self.unlinking = Some(number);
        Some(LinkNews::Unlinked(number))
    }

    /// `TakeLink`. Returns `true` if it has linked the two.
    pub fn take_link(&mut self) -> bool {
        if self.unlinking.is_some() && MUTATION != mutation::LINK_WHILE_UNLINKING {
            return false;
        }
        !std::mem::replace(&mut self.is_linked, true)
    }

    /// `TakeUnlink`.
    pub fn take_unlink(&mut self, number: u64) -> LinkNews {
        self.is_linked = false;
        LinkNews::Acknowledged(number)
    }

    /// `TakeAck`.
    pub fn take_ack(&mut self, number: u64) {
        self.unlinking.take_if(|last| *last == number || MUTATION == mutation::ANY_ANSWER);
    }

    /// `TakeEnd`. Returns `true` if the two were linked.
    pub fn take_end(&mut self) -> bool {
        std::mem::take(&mut self.is_linked)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::{Arc, Mutex, explore, thread};

    use super::{LinkNews, RemoteLink, mutation};

    /// A process of this program, and the queue of its signals.
    struct Side<const MUTATION: u8> {
        link: Mutex<RemoteLink<MUTATION>>,
        queue: Mutex<Vec<LinkNews>>,
    }

    impl<const MUTATION: u8> Side<MUTATION> {
        /// Changes the link, and queues the signal of the change: in one step, or in two.
        fn change<const ONE_STEP: bool>(
            &self,
            change: impl FnOnce(&mut RemoteLink<MUTATION>) -> Option<LinkNews>,
        ) {
            let mut link = self.link.lock();
            let news = change(&mut link);
            let held = ONE_STEP.then_some(link);
            self.queue.lock().extend(news);
            drop(held);
        }
    }

    /// Takes a signal of the other side. Returns the answer.
    fn take<const MUTATION: u8>(
        link: &mut RemoteLink<MUTATION>,
        news: LinkNews,
    ) -> Option<LinkNews> {
        match news {
            LinkNews::Linked => {
                link.take_link();
                None
            }
            LinkNews::Unlinked(number) => Some(link.take_unlink(number)),
            LinkNews::Acknowledged(number) => {
                link.take_ack(number);
                None
            }
        }
    }

    /// Two linked processes. The process here unlinks and links, or only links, while another
    /// thread carries out the unlink of the other process.
    fn cross<const ONE_STEP: bool, const MUTATION: u8>(unlinks: bool) {
        explore(move || {
            let linked = || RemoteLink::<MUTATION> { is_linked: true, unlinking: None };
            let mut there = linked();
            let unlink = there.unlink(1).expect("they are linked");
            let side = Arc::new(Side { link: Mutex::new(linked()), queue: Mutex::new(Vec::new()) });
            let process = {
                let side = Arc::clone(&side);
                thread::spawn(move || {
                    if unlinks {
                        side.change::<ONE_STEP>(|link| link.unlink(2));
                    }
                    side.change::<ONE_STEP>(RemoteLink::link);
                })
            };
            side.change::<ONE_STEP>(|link| take(link, unlink));
            process.join().expect("it does not panic");
            // All that was queued arrives there in order, and then the answers here.
            let mut here = side.link.lock();
            let queued = std::mem::take(&mut *side.queue.lock());
            let answers: Vec<_> =
                queued.into_iter().filter_map(|news| take(&mut there, news)).collect();
            for answer in answers {
                take(&mut here, answer);
            }
            assert_eq!(here.is_linked, there.is_linked, "both have the link, or neither");
            assert_eq!((here.unlinking, there.unlinking), (None, None), "all is acknowledged");
        });
    }

    /// Two linked processes. The process here has unlinked, linked and unlinked again. The other
    /// process unlinks and links while another thread carries that out. The answer to the first
    /// unlink arrives while the second unlink still waits for its answer.
    fn unlink_twice<const MUTATION: u8>() {
        explore(|| {
            let linked = || RemoteLink::<MUTATION> { is_linked: true, unlinking: None };
            let mut here = linked();
            let told = [here.unlink(1), here.link(), here.unlink(2)];
            let side = Arc::new(Side { link: Mutex::new(linked()), queue: Mutex::new(Vec::new()) });
            let process = {
                let side = Arc::clone(&side);
                thread::spawn(move || {
                    side.change::<true>(|link| link.unlink(3));
                    side.change::<true>(RemoteLink::link);
                })
            };
            for news in told.into_iter().flatten() {
                side.change::<true>(|link| take(link, news));
            }
            process.join().expect("it does not panic");
            let mut there = side.link.lock();
            let queued = std::mem::take(&mut *side.queue.lock());
            let answers: Vec<_> =
                queued.into_iter().filter_map(|news| take(&mut here, news)).collect();
            for answer in answers {
                take(&mut there, answer);
            }
            assert_eq!(here.is_linked, there.is_linked, "both have the link, or neither");
            assert_eq!((here.unlinking, there.unlinking), (None, None), "all is acknowledged");
        });
    }

    #[test]
    fn a_second_unlink_waits_for_its_own_answer() {
        unlink_twice::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "both have the link, or neither")]
    fn canary_any_answer() {
        unlink_twice::<{ mutation::ANY_ANSWER }>();
    }

    #[test]
    fn links_and_unlinks_cross() {
        for unlinks in [false, true] {
            cross::<true, { mutation::SOUND }>(unlinks);
        }
    }

    #[test]
    #[should_panic(expected = "both have the link, or neither")]
    fn canary_told_in_a_second_step() {
        cross::<false, { mutation::SOUND }>(false);
    }

    #[test]
    #[should_panic(expected = "both have the link, or neither")]
    fn canary_link_while_unlinking() {
        cross::<true, { mutation::LINK_WHILE_UNLINKING }>(true);
    }
}
