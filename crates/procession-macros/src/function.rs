//! The function that an attribute is put on.

use std::iter::Peekable;
use std::vec::IntoIter;

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::error::Misuse;
use crate::{code, parentheses};

/// An async function without parameters.
pub(crate) struct AsyncFunction {
    attributes: Vec<Group>,
    visibility: TokenStream,
    pub(crate) name: Ident,
    /// The arrow and the type after it, or nothing.
    pub(crate) output: TokenStream,
    body: Group,
}

type Tokens = Peekable<IntoIter<TokenTree>>;

impl AsyncFunction {
    /// Parses the item below the attribute `attribute`.
    pub(crate) fn parse(item: TokenStream, attribute: &str) -> Result<Self, Misuse> {
        let mut tokens = all_tokens(item);
        let mut attributes = Vec::new();
        while tokens.next_if(|token| is_punct(token, '#')).is_some() {
            if let Some(TokenTree::Group(group)) = tokens.next() {
                attributes.push(group);
            }
        }
        let visibility = visibility(&mut tokens);
        let name = head(&mut tokens, attribute)?;
        let Some(TokenTree::Group(parameters)) = tokens.next() else {
            let message = format!("a function with `#[procession::{attribute}]` cannot be generic");
            return Err(Misuse::at(name.span(), message));
        };
        if !parameters.stream().is_empty() {
            let message = format!("a function with `#[procession::{attribute}]` has no parameters");
            return Err(Misuse::at(parameters.span(), message));
        }
        let mut rest: Vec<TokenTree> = tokens.collect();
        let body = match rest.pop() {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
            _ => return Err(Misuse::at(name.span(), "the function has no body")),
        };
        if let Some(clause) = rest.iter().find(|token| is_word(token, "where")) {
            let message =
                format!("a function with `#[procession::{attribute}]` has no `where` clause");
            return Err(Misuse::at(clause.span(), message));
        }
        Ok(Self { attributes, visibility, name, output: rest.into_iter().collect(), body })
    }

    /// Refuses a second attribute that makes a test, with which the test would run twice.
    pub(crate) fn refuse_second_test(&self) -> Result<(), Misuse> {
        for attribute in &self.attributes {
            let mut path = attribute
                .stream()
                .into_iter()
                .take_while(|token| matches!(token, TokenTree::Ident(_)) || is_punct(token, ':'));
            if path.by_ref().last().is_some_and(|last| is_word(&last, "test")) {
                let message = "the function has two attributes that make a test: remove one";
                return Err(Misuse::at(attribute.span(), message));
            }
        }
        Ok(())
    }

    /// Returns the async function, to be defined in the plain one.
    pub(crate) fn inner(&self) -> TokenStream {
        let mut tokens = code("async fn");
        tokens.extend([TokenTree::from(self.name.clone()), parentheses(TokenStream::new()).into()]);
        tokens.extend(self.output.clone());
        tokens.extend([TokenTree::from(self.body.clone())]);
        tokens
    }

    /// Returns the plain function.
    pub(crate) fn outer(
        &self,
        first_attribute: TokenStream,
        output: TokenStream,
        body: TokenStream,
    ) -> TokenStream {
        let mut tokens = first_attribute;
        for attribute in &self.attributes {
            tokens.extend(code("#"));
            tokens.extend([TokenTree::from(attribute.clone())]);
        }
        tokens.extend(self.visibility.clone());
        tokens.extend(code("fn"));
        tokens.extend([TokenTree::from(self.name.clone()), parentheses(TokenStream::new()).into()]);
        tokens.extend(output);
        tokens.extend([TokenTree::from(Group::new(Delimiter::Brace, body))]);
        tokens
    }
}

/// Returns `true` if the item is a function that is not async.
pub(crate) fn is_plain(item: TokenStream) -> bool {
    let mut tokens = all_tokens(item);
    while tokens.next_if(|token| is_punct(token, '#')).is_some() {
        tokens.next();
    }
    visibility(&mut tokens);
    let is_head = |token: &TokenTree| {
        matches!(token, TokenTree::Literal(_))
            || ["const", "unsafe", "extern"].iter().any(|word| is_word(token, word))
    };
    while tokens.next_if(is_head).is_some() {}
    tokens.next().is_some_and(|token| is_word(&token, "fn"))
}

/// Returns the tokens of an item. A fragment of a declarative macro is in an invisible group.
fn all_tokens(item: TokenStream) -> Tokens {
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::None => {
            all_tokens(group.stream())
        }
        _ => tokens.into_iter().peekable(),
    }
}

fn visibility(tokens: &mut Tokens) -> TokenStream {
    let mut visibility = TokenStream::new();
    // The fragment `vis` of a declarative macro is in an invisible group, even if it is empty.
    visibility.extend(tokens.next_if(|token| is_group(token, Delimiter::None)));
    if let Some(word) = tokens.next_if(|token| is_word(token, "pub")) {
        visibility.extend([word]);
        visibility.extend(tokens.next_if(|token| is_group(token, Delimiter::Parenthesis)));
    }
    visibility
}

/// Takes the words from `async` to the name, and returns the name.
fn head(tokens: &mut Tokens, attribute: &str) -> Result<Ident, Misuse> {
    let wanted = format!("`#[procession::{attribute}]` is for functions of the form `async fn`");
    let mut is_async = false;
    loop {
        let Some(token) = tokens.next() else {
            return Err(Misuse::at(Span::call_site(), wanted));
        };
        if is_word(&token, "async") && !is_async {
            is_async = true;
        } else if is_word(&token, "fn") && is_async {
            break;
        } else {
            return Err(Misuse::at(token.span(), wanted));
        }
    }
    match tokens.next() {
        Some(TokenTree::Ident(name)) => Ok(name),
        _ => Err(Misuse::at(Span::call_site(), wanted)),
    }
}

pub(crate) fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

pub(crate) fn is_punct(token: &TokenTree, punct: char) -> bool {
    matches!(token, TokenTree::Punct(own) if own.as_char() == punct)
}

pub(crate) fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}
