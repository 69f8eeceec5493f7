//! Methods of features that are off, so that the compiler's message names the feature.
//!
//! The runtime explains the macro.

use procession_runtime::needs_feature;

#[cfg(all(feature = "serve", not(feature = "http2")))]
needs_feature! {
    NeedsHttp2: "this method needs the feature `http2` of procession",
    "to enable it, run `cargo add procession --features http2`";
    impl crate::Server {
        fn http2[](self) -> Self;
    }
}

#[cfg(all(feature = "serve", not(feature = "tls")))]
needs_feature! {
    NeedsServerTls: "this method needs the feature `tls` of procession",
    "to enable it, run `cargo add procession --features tls`";
    impl crate::Server {
        fn tls[C](self, _: C) -> Self;
        fn handshake_timeout[T](self, _: T) -> Self;
    }
}

#[cfg(all(feature = "client", not(feature = "tls")))]
needs_feature! {
    NeedsClientTls: "this method needs the feature `tls` of procession",
    "to enable it, run `cargo add procession --features tls`";
    impl crate::Connector {
        fn tls[C](self, _: C) -> Self;
    }
}
