//! The word: the numbers of workers that search, are awake, and can be woken.

pub(super) const SEARCHING_ONE: u64 = 1 << 40;
pub(super) const AWAKE_ONE: u64 = 1 << 20;
pub(super) const FIELD: u64 = AWAKE_ONE - 1;

#[derive(Clone, Copy)]
pub(super) struct IdleWord(pub(super) u64);

impl IdleWord {
    #[inline]
    pub(super) fn searching(self) -> u32 {
        (self.0 >> 40) as u32
    }

    #[inline]
    pub(super) fn awake(self) -> u32 {
        (self.0 >> 20 & FIELD) as u32
    }

    #[inline]
    pub(super) fn spare(self) -> u32 {
        (self.0 & FIELD) as u32
    }

    #[inline]
    pub(super) fn offers_nobody(self) -> bool {
        self.searching() > 0 || self.spare() == 0
    }
}
