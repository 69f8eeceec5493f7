//! The attribute `test`, in place of the attribute of std: the function can be the program of a
//! simulation.
//!
//! In the tests of the interface of `procession`, `#[test]` means this attribute. It passes each
//! function and its name to `crate::simulated::run`, which calls the function as it is, or in a
//! simulation.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Makes a test of a function that can run in a simulation.
#[proc_macro_attribute]
pub fn test(_: TokenStream, function: TokenStream) -> TokenStream {
    let mut attributes = TokenStream::new();
    let mut tokens = function.clone().into_iter().peekable();
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    while let Some(token) = tokens.next_if(|token| !is_fn(token)) {
        attributes.extend([token]);
    }
    let name = tokens.nth(1).expect("a name follows `fn`").to_string();
    let call = format!("crate::simulated::run(concat!(module_path!(), \"::{name}\"), {name});");
    let call: TokenStream = call.parse().expect("it is a call");
    let mut wrapper: TokenStream = "#[::core::prelude::v1::test]".parse().expect("an attribute");
    wrapper.extend(attributes);
    wrapper.extend(format!("fn {name}()").parse::<TokenStream>().expect("it is the head of one"));
    let body: TokenStream = [without_attributes(function), call].into_iter().collect();
    wrapper.extend([TokenTree::Group(Group::new(Delimiter::Brace, body))]);
    wrapper
}

/// Returns the function without what stands before `fn`.
fn without_attributes(function: TokenStream) -> TokenStream {
    let is_before =
        |token: &TokenTree| !matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    function.into_iter().skip_while(is_before).collect()
}
