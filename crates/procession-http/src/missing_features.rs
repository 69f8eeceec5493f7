//! Methods of features that are off, so that the compiler's message names the feature.
//!
//! If an item is missing, the compiler names the feature that adds it. If a method is missing, the
//! compiler does not: it proposes a method with a similar name. Because of that, each such method
//! exists without its feature, too, with a bound that nothing satisfies. The message of the bound
//! names the feature.

/// Defines the methods of a type that need a feature. The generics of a method stand in brackets.
macro_rules! need {
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

#[cfg(all(feature = "serve", not(feature = "http2")))]
need! {
    NeedsHttp2: "this method needs the feature `http2` of procession",
    "to enable it, run `cargo add procession --features http2`";
    impl crate::Server {
        fn http2[](self) -> Self;
    }
}

#[cfg(all(feature = "serve", not(feature = "tls")))]
need! {
    NeedsServerTls: "this method needs the feature `tls` of procession",
    "to enable it, run `cargo add procession --features tls`";
    impl crate::Server {
        fn tls[C](self, _: C) -> Self;
        fn handshake_timeout[T](self, _: T) -> Self;
    }
}

#[cfg(all(feature = "client", not(feature = "tls")))]
need! {
    NeedsClientTls: "this method needs the feature `tls` of procession",
    "to enable it, run `cargo add procession --features tls`";
    impl crate::Connector {
        fn tls[C](self, _: C) -> Self;
    }
}
