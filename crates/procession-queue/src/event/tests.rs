use std::convert::Infallible;

use super::{Entry, Event, Head, Node, Stack, mutation};

/// If the predecessor of a push is replaced by another node at the same address, the push leads
/// to the new node, which Miri checks. The push stands still between its load of the word and
/// its compare-and-swap. The replaced node is one of the system, since a message would change
/// the count.
#[test]
fn a_push_leads_to_whatever_is_at_the_address_that_it_saw() {
    let queue = Stack::<u8, u64, { mutation::SOUND }>::new();
    for _ in 0..1000 {
        assert!(queue.push_system(Entry::new(1)).is_ok());
        let seen = queue.see();
        let node = Box::new(Node { head: Head { next: seen.list() }, item: 7 });
        drop(queue.take());
        assert!(queue.push_system(Entry::new(2)).is_ok());
        if queue.see().0 != seen.0 {
            // The allocator has returned another address.
            drop(queue.take());
            continue;
        }
        assert!(queue.push_node(node, 0, seen).is_ok());
        assert!(queue.take().eq([Event::System(Entry::new(2)), Event::Message(7)]));
        return;
    }
    panic!("no address was used again in 1000 times");
}

#[test]
fn the_count_begins_again() {
    let queue = Stack::<u8, Infallible, { mutation::SOUND }>::counting_from(u16::MAX - 1);
    let taken = u32::from(u16::MAX) - 1;
    for pushed in 1..=4 {
        assert!(queue.push(7).is_ok());
        assert_eq!(queue.len(taken), pushed);
    }
    assert_eq!(queue.take().len(), 4);
    assert_eq!(queue.len(taken + 4), 0);
    assert_eq!(queue.len(taken), 4, "as if they had not been taken");
}
