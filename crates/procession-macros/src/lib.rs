//! The attributes `procession::main` and `procession::testing::test`.
//!
//! Use them through the crate `procession`, with its feature `macros`. Its documentation describes
//! them. The code that they generate refers to items of `procession`.
//!
//! An attribute leaves its function as it is and puts it into a plain function of the same name,
//! which calls it. So the compiler reports errors of the body at their places, and the body keeps
//! its return type.
#![forbid(unsafe_code)]

mod error;
mod function;
mod options;

use proc_macro::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};

use crate::error::Misuse;
use crate::function::AsyncFunction;
use crate::options::Options;

/// Runs an async function as the main function of a program. See `procession::main`.
#[proc_macro_attribute]
pub fn main(options: TokenStream, function: TokenStream) -> TokenStream {
    expand_main(options, function).unwrap_or_else(|misuse| {
        // Without a main function, the compiler would also report that the main function is
        // missing.
        let mut tokens = misuse.into_tokens();
        tokens.extend(code("fn main() {}"));
        tokens
    })
}

/// Makes a test of an async function. Leaves a plain function to the attribute of the language. See
/// `procession::testing::test`.
#[proc_macro_attribute]
pub fn test(options: TokenStream, function: TokenStream) -> TokenStream {
    expand_test(options, function).unwrap_or_else(Misuse::into_tokens)
}

/// The option of `main` that has the name of the method which it calls.
const UNTIL_SIGNAL: &str = "run_until_signal";

fn expand_main(options: TokenStream, function: TokenStream) -> Result<TokenStream, Misuse> {
    let function = AsyncFunction::parse(function, "main")?;
    let options = Options::parse(options, &[UNTIL_SIGNAL])?;
    let mut body = function.inner();
    let until_signal = options.own_value(UNTIL_SIGNAL)?;
    let mut call = TokenStream::from(TokenTree::from(function.name.clone()));
    call.extend([TokenTree::from(parentheses(TokenStream::new()))]);
    let (default, own, arguments, output) = match until_signal {
        None => ("::run", ".block_on", call, function.output.clone()),
        Some(mut arguments) => {
            arguments.extend(code(","));
            arguments.extend(call);
            let output = code("-> impl ::std::process::Termination");
            ("::Scheduler::global().run_until_signal", ".run_until_signal", arguments, output)
        }
    };
    if options.for_builder.is_empty() {
        body.extend(options.root());
        body.extend(code(default));
    } else {
        body.extend(code("let builder ="));
        body.extend(options.root());
        body.extend(code("::Scheduler::builder();"));
        body.extend(options.builder_statements());
        body.extend(code(
            "builder.build().unwrap_or_else(|error| ::core::panic!(\
             \"cannot build the scheduler of the main function: {error}\"))",
        ));
        body.extend(code(own));
    }
    body.extend([TokenTree::from(parentheses(arguments))]);
    Ok(function.outer(TokenStream::new(), output, body))
}

fn expand_test(options: TokenStream, function: TokenStream) -> Result<TokenStream, Misuse> {
    // With `use procession::testing::test`, this attribute replaces the language's own attribute.
    if options.is_empty() && function::is_plain(function.clone()) {
        let mut tokens = code("#[::core::prelude::v1::test]");
        tokens.extend(function);
        return Ok(tokens);
    }
    let function = AsyncFunction::parse(function, "testing::test")?;
    function.refuse_second_test()?;
    let options = Options::parse(options, &["seed", "repeats", "time_limit", "real_clock"])?;
    let mut body = function.inner();
    body.extend(options.root());
    let name = Literal::string(function.name.to_string().trim_start_matches("r#"));
    body.extend(code("::testing::Test::new"));
    let mut parts = code("::core::module_path!(), \"::\",");
    parts.extend([TokenTree::from(name)]);
    let mut path = code("::core::concat!");
    path.extend([TokenTree::from(parentheses(parts))]);
    body.extend([TokenTree::from(parentheses(path))]);
    body.extend(options.own_calls());
    if !options.for_builder.is_empty() {
        let mut configure = options.builder_statements();
        configure.extend(code("builder"));
        let mut closure = code("|builder|");
        closure.extend([TokenTree::from(Group::new(Delimiter::Brace, configure))]);
        body.extend(code(".configure"));
        body.extend([TokenTree::from(parentheses(closure))]);
    }
    body.extend(code(".run"));
    let test = TokenStream::from(TokenTree::from(function.name.clone()));
    body.extend([TokenTree::from(parentheses(test))]);
    Ok(function.outer(code("#[::core::prelude::v1::test]"), TokenStream::new(), body))
}

/// Parses code of the macros. Its local variables are invisible to the code of the caller.
fn code(text: &str) -> TokenStream {
    let tokens: TokenStream = text.parse().expect("the macros emit well-formed code");
    respanned(tokens, Span::mixed_site())
}

fn respanned(tokens: TokenStream, span: Span) -> TokenStream {
    let respan = |mut token: TokenTree| {
        if let TokenTree::Group(group) = &token {
            let inner = respanned(group.stream(), span);
            token = Group::new(group.delimiter(), inner).into();
        }
        token.set_span(span);
        token
    };
    tokens.into_iter().map(respan).collect()
}

fn parentheses(tokens: TokenStream) -> Group {
    Group::new(Delimiter::Parenthesis, tokens)
}
