//! Values of the user, which may panic when they are dropped.

use std::fmt;
use std::ops::{Deref, DerefMut};

use procession::process::catch_panic;

/// A value with code of the user. A panic of its drop ends here, so that it harms neither the
/// process of a connection nor the keeper of a node.
#[derive(Clone)]
pub(crate) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only the drop takes it")
    }
}

impl<T> DerefMut for Guarded<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only the drop takes it")
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        catch_panic(|| drop(value));
    }
}

impl<T: fmt::Debug> fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Guarded;

    /// Panics when it is dropped.
    struct Rude;

    impl Drop for Rude {
        fn drop(&mut self) {
            panic!("a value of the user");
        }
    }

    #[test]
    fn a_panic_of_a_drop_ends_here() {
        drop(Guarded::new(Rude));
    }
}
