//! The lists of waiters, and the primitives that use these lists.

pub mod batch_semaphore;
pub mod bell;
pub mod broadcast {
    //! Channels of which each receiver gets each message.

    pub mod core;
}
pub mod channel {
    //! Channels of which one receiver gets each message.

    pub mod core;
}
pub mod end_count;
pub mod notify {
    //! Notifications without a value.

    pub mod core;
}
pub mod oneshot {
    //! Channels for one value.

    pub mod core;
}
pub mod supply_queue;
pub mod token_tree;
pub mod upkeep;
pub mod wait_list;
pub mod watch {
    //! Channels that keep the last value.

    pub mod core;
}
