//! Methods of features that are off, so that the compiler's message names the feature.
//!
//! If an item is missing, the compiler names the feature that adds it. If a method is missing, the
//! compiler instead proposes a method with a similar name. So each such method also exists without
//! its feature, but with a bound that nothing satisfies. The error message of the bound names the
//! feature.

/// Defines the methods of a type that need a feature. The generics of a method stand in brackets.
/// No promise: it is for the other crates of Procession.
#[doc(hidden)]
#[macro_export]
macro_rules! needs_feature {
    (
        $bound:ident: $message:literal, $note:literal;
        impl $of:ty {
            $(fn $method:ident [$($type:ident),*] $parameters:tt -> $output:ty;)*
        }
    ) => {
        #[diagnostic::on_unimplemented(
            message = $message,
            label = "the feature is not enabled",
            note = $note
        )]
        #[doc(hidden)]
        pub trait $bound {}

        impl $of {
            $(
                #[doc(hidden)]
                pub fn $method<$($type),*> $parameters -> $output
                where
                    for<'a> &'a (): $bound,
                {
                    unreachable!("nothing satisfies the bound")
                }
            )*
        }
    };
}

#[cfg(not(feature = "look"))]
needs_feature! {
    NeedsLook: "this method needs the feature `look` of procession",
    "to enable it, run `cargo add procession --features look`";
    impl crate::Scheduler {
        fn look[Q](&self, _: Q) -> !;
        fn detail[](&self, _: crate::Pid) -> !;
        fn supervision[](&self) -> !;
        fn inspect[](&self, _: crate::Pid) -> !;
        fn suspend[](&self, _: crate::Pid) -> !;
        fn suspend_for[D](&self, _: crate::Pid, _: D) -> !;
        fn resume[](&self, _: crate::Pid) -> bool;
        fn trace_messages[D](&self, _: crate::Pid, _: usize, _: D) -> !;
        fn trace[D](&self, _: D) -> !;
    }
}

#[cfg(not(feature = "look"))]
needs_feature! {
    NeedsLookFiles: "this method needs the feature `look` of procession",
    "to enable it, run `cargo add procession --features look`";
    impl crate::Builder {
        fn dump_directory[P](self, _: P) -> Self;
    }
}

#[cfg(not(feature = "pool"))]
needs_feature! {
    NeedsPool: "this method needs the feature `pool` of procession",
    "to enable it, run `cargo add procession --features pool`";
    impl crate::pool::Builder {
        fn build_async[](self) -> !;
        fn build_coroutines[](self) -> !;
        fn build_function[F](self, _: F) -> !;
        fn build_async_function[F](self, _: F) -> !;
        fn build_coroutine_function[F](self, _: F) -> !;
    }
}

#[cfg(not(feature = "pool"))]
needs_feature! {
    NeedsPoolScope: "this method needs the feature `pool` of procession",
    "to enable it, run `cargo add procession --features pool`";
    impl crate::pool::Pool {
        fn scope[F](&self, _: F) -> !;
    }
}

#[cfg(not(feature = "signal"))]
needs_feature! {
    NeedsSignal: "this method needs the feature `signal` of procession",
    "to enable it, run `cargo add procession --features signal`";
    impl crate::Scheduler {
        fn run_until_signal[D, F](&self, _: D, _: F) -> !;
    }
}

#[cfg(not(feature = "tokio"))]
needs_feature! {
    NeedsTokio: "this method needs the feature `tokio` of procession",
    "to enable it, run `cargo add procession --features tokio`";
    impl crate::Builder {
        fn tokio_threads[](self, _: usize) -> Self;
        fn tokio_on[H](self, _: H) -> Self;
    }
}

#[cfg(not(feature = "door"))]
needs_feature! {
    NeedsDoor: "this method needs the feature `door` of procession",
    "to enable it, run `cargo add procession --features door`";
    impl crate::Builder {
        fn door[O](self, _: O) -> Self;
        fn no_door[](self) -> Self;
        fn panic_backtraces[](self, _: bool) -> Self;
    }
}
