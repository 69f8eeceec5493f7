//! The work-stealing queues behind one interface.

use crossbeam_deque as crossbeam;
use procession_queue::Steal;

/// The capacity of the bounded queues. Crossbeam's grow from 64.
const CAPACITY: usize = 256;

/// The owner's side of a queue. A default one is empty.
pub(crate) trait Deque: Default + Send {
    type Stealer: Send;

    fn stealer(&self) -> Self::Stealer;

    /// Pushes an item. Returns `false` if there was no room.
    fn push(&self, item: usize) -> bool;

    fn pop(&self) -> Option<usize>;

    /// Takes half of `victim`, rounded up, as far as the queue's design allows: one item is
    /// returned, the others come here.
    fn steal_half(&self, victim: &Self::Stealer) -> Steal<usize>;
}

macro_rules! procession {
    ($rival:ident, $module:ident) => {
        #[derive(Default)]
        pub(crate) struct $rival(procession_queue::$module::Owner<usize, CAPACITY>);

        impl Deque for $rival {
            type Stealer = procession_queue::$module::Stealer<usize, CAPACITY>;

            fn stealer(&self) -> Self::Stealer {
                self.0.stealer()
            }

            #[inline]
            fn push(&self, item: usize) -> bool {
                self.0.push(item).is_ok()
            }

            #[inline]
            fn pop(&self) -> Option<usize> {
                self.0.pop()
            }

            #[inline]
            fn steal_half(&self, victim: &Self::Stealer) -> Steal<usize> {
                self.0.steal_half(victim)
            }
        }
    };
}

procession!(ProcessionLifo, deque);
procession!(ProcessionFifo, fifo);

macro_rules! crossbeam {
    ($rival:ident, $new:ident) => {
        pub(crate) struct $rival(crossbeam::Worker<usize>);

        impl Default for $rival {
            fn default() -> Self {
                Self(crossbeam::Worker::$new())
            }
        }

        impl Deque for $rival {
            type Stealer = crossbeam::Stealer<usize>;

            fn stealer(&self) -> Self::Stealer {
                self.0.stealer()
            }

            #[inline]
            fn push(&self, item: usize) -> bool {
                self.0.push(item);
                true
            }

            #[inline]
            fn pop(&self) -> Option<usize> {
                self.0.pop()
            }

            #[inline]
            fn steal_half(&self, victim: &Self::Stealer) -> Steal<usize> {
                match victim.steal_batch_and_pop(&self.0) {
                    crossbeam::Steal::Success(item) => Steal::Success(item),
                    crossbeam::Steal::Empty => Steal::Empty,
                    crossbeam::Steal::Retry => Steal::Retry,
                }
            }
        }
    };
}

crossbeam!(CrossbeamLifo, new_lifo);
crossbeam!(CrossbeamFifo, new_fifo);

macro_rules! st3 {
    ($rival:ident, $module:ident) => {
        pub(crate) struct $rival(st3::$module::Worker<usize>);

        impl Default for $rival {
            fn default() -> Self {
                Self(st3::$module::Worker::new(CAPACITY))
            }
        }

        impl Deque for $rival {
            type Stealer = st3::$module::Stealer<usize>;

            fn stealer(&self) -> Self::Stealer {
                self.0.stealer()
            }

            #[inline]
            fn push(&self, item: usize) -> bool {
                self.0.push(item).is_ok()
            }

            #[inline]
            fn pop(&self) -> Option<usize> {
                self.0.pop()
            }

            #[inline]
            fn steal_half(&self, victim: &Self::Stealer) -> Steal<usize> {
                match victim.steal_and_pop(&self.0, |length| length - length / 2) {
                    Ok((item, _)) => Steal::Success(item),
                    Err(st3::StealError::Empty) => Steal::Empty,
                    Err(st3::StealError::Busy) => Steal::Retry,
                }
            }
        }
    };
}

st3!(St3Lifo, lifo);
st3!(St3Fifo, fifo);
