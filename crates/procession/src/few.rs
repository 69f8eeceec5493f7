//! Some things, most often one.

/// Things in the order in which they came, of which the first needs no memory of its own.
#[derive(Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, more: Vec::new() }
    }
}

impl<T> Few<T> {
    #[inline]
    pub(crate) fn push(&mut self, thing: T) {
        match self.first {
            None => self.first = Some(thing),
            Some(_) => self.more.push(thing),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Hands out all of them.
    #[inline]
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.first.take().into_iter().chain(std::mem::take(&mut self.more))
    }

    #[inline]
    pub(crate) fn for_each(self, each: impl FnMut(T)) {
        self.first.into_iter().chain(self.more).for_each(each);
    }
}
