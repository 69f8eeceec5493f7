//! The protocols of the crate `procession`, built for their models under the cfg `procession_loom`.
//!
//! These are the same files as in `procession`, without the runtime around them: threads, sockets
//! and coroutines do not exist under loom. Without the cfg this crate is empty.
#![cfg(procession_loom)]
#![expect(dead_code, unreachable_pub, reason = "without the runtime, only the models use them")]

#[path = "../../procession/src/util"]
mod util {
    pub(crate) mod biased_lock;
    pub(crate) mod block_queue;
    pub(crate) mod histogram;
    pub(crate) mod membarrier;
    pub(crate) mod mutant;
    pub(crate) mod prefetch;
    pub(crate) mod shares;
    pub(crate) mod small_vec;
    pub(crate) mod twin;
}
#[path = "../../procession/src/process"]
mod process {
    pub(crate) mod join_waker;
    pub(crate) mod refcount;
    pub(crate) mod request_table;
    #[cfg(test)]
    #[path = "slot"]
    mod slot {
        mod models;
    }
    pub(crate) mod state;
}
#[path = "../../procession/src/sys"]
mod sys {
    pub(crate) mod handover;
}
#[path = "../../procession/src/relations"]
mod relations {
    pub(crate) mod on_exit;
    pub(crate) mod remote_links;
}
#[path = "../../procession/src/mailbox"]
mod mailbox {
    pub(crate) mod answer;
    pub(crate) mod bounded;
}
#[path = "../../procession/src/scheduler"]
mod scheduler {
    pub(crate) mod dependents;
    pub(crate) mod driver;
    pub(crate) mod idle;
    pub(crate) mod lifo_slot;
    pub(crate) mod pace;
    pub(crate) mod seat_id;
    pub(crate) mod shutdown;
    pub(crate) mod wait_cycle;
    #[path = "writes"]
    pub(crate) mod writes {
        pub(crate) mod table;
    }
}
#[path = "../../procession/src/recorder"]
mod recorder {
    pub(crate) mod ring;
}
#[path = "../../procession/src/watchdog"]
mod watchdog {
    pub(crate) mod park;
}
#[path = "../../procession/src/time"]
mod time {
    pub(crate) mod timers;
}
#[path = "../../procession/src/io"]
mod io {
    pub(crate) mod readiness;
}
#[path = "../../procession/src/sync"]
mod sync {
    pub(crate) mod batch_semaphore;
    pub(crate) mod bell;
    #[path = "broadcast"]
    pub(crate) mod broadcast {
        pub(crate) mod core;
    }
    #[path = "channel"]
    pub(crate) mod channel {
        pub(crate) mod core;
    }
    pub(crate) mod end_count;
    #[path = "notify"]
    pub(crate) mod notify {
        pub(crate) mod core;
    }
    #[path = "oneshot"]
    pub(crate) mod oneshot {
        pub(crate) mod core;
    }
    pub(crate) mod token_tree;
    pub(crate) mod wait_list;
    #[path = "watch"]
    pub(crate) mod watch {
        pub(crate) mod core;
    }
}
#[path = "../../procession/src/signal"]
mod signal {
    pub(crate) mod inbox;
}
#[path = "../../procession/src/pool"]
mod pool {
    pub(crate) mod state;
}
