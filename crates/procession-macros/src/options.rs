//! The options of an attribute.

use proc_macro::{Delimiter, Group, Ident, TokenStream, TokenTree};

use crate::error::Misuse;
use crate::function::{is_group, is_punct, is_word};
use crate::{code, parentheses};

/// An option: `name`, `name = value` or `unsafe(name)`.
pub(crate) struct AttributeOption {
    name: Ident,
    /// Empty if there is none.
    value: TokenStream,
    /// The keyword `unsafe`, if the option has it.
    unsafe_word: Option<Ident>,
}

/// The options of an attribute.
#[derive(Default)]
pub(crate) struct Options {
    /// The path of the crate `procession`, if the option `crate` states it.
    root: Option<TokenStream>,
    /// The options that the attribute itself has.
    own: Vec<AttributeOption>,
    /// The options that are methods of `procession::scheduler::Builder`.
    pub(crate) for_builder: Vec<AttributeOption>,
}

impl Options {
    /// Parses the options of an attribute. `own` lists the options of the attribute itself, which
    /// are not methods of the builder.
    pub(crate) fn parse(tokens: TokenStream, own: &[&str]) -> Result<Self, Misuse> {
        let mut options = Self::default();
        let mut seen = Vec::new();
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut parts: Vec<_> = tokens.split(|token| is_punct(token, ',')).collect();
        if parts.last().is_some_and(|last| last.is_empty()) {
            parts.pop();
        }
        for part in parts {
            let option = AttributeOption::parse(part, tokens.first())?;
            let name = option.name.to_string();
            if seen.contains(&name) {
                return Err(Misuse::at(option.name.span(), format!("`{name}` is given twice")));
            }
            if name == "crate" {
                if option.value.is_empty() {
                    let message = "`crate` takes the path of procession, as in `crate = path`";
                    return Err(Misuse::at(option.name.span(), message));
                }
                options.root = Some(option.value);
            } else if own.contains(&name.as_str()) {
                options.own.push(option);
            } else {
                options.for_builder.push(option);
            }
            seen.push(name);
        }
        Ok(options)
    }

    /// Returns the path of the crate `procession`.
    pub(crate) fn root(&self) -> TokenStream {
        self.root.clone().unwrap_or_else(|| code("::procession"))
    }

    /// Returns the value of an option of the attribute itself, if it is given.
    pub(crate) fn own_value(&self, name: &str) -> Result<Option<TokenStream>, Misuse> {
        let Some(option) = self.own.iter().find(|option| option.name.to_string() == name) else {
            return Ok(None);
        };
        if option.value.is_empty() {
            let message = format!("`{name}` needs a value, as in `{name} = value`");
            return Err(Misuse::at(option.name.span(), message));
        }
        Ok(Some(option.value.clone()))
    }

    /// Returns the calls that set the options of the attribute itself.
    pub(crate) fn own_calls(&self) -> TokenStream {
        self.own.iter().map(AttributeOption::call).collect()
    }

    /// Returns the statements that set the options of `builder`.
    pub(crate) fn builder_statements(&self) -> TokenStream {
        self.for_builder.iter().map(AttributeOption::builder_statement).collect()
    }
}

impl AttributeOption {
    /// Parses one option, which is a part of the options that begin with `first`.
    fn parse(part: &[TokenTree], first: Option<&TokenTree>) -> Result<Self, Misuse> {
        let plain = |name: &Ident, value: &[TokenTree]| Self {
            name: name.clone(),
            value: value.iter().cloned().collect(),
            unsafe_word: None,
        };
        match part {
            [TokenTree::Ident(word), TokenTree::Group(group)]
                if word.to_string() == "unsafe" && group.delimiter() == Delimiter::Parenthesis =>
            {
                let inner: Vec<_> = group.stream().into_iter().collect();
                let option = Self::parse(&inner, Some(&part[1]))?;
                Ok(Self { unsafe_word: Some(word.clone()), ..option })
            }
            [TokenTree::Ident(name)] => Ok(plain(name, &[])),
            [TokenTree::Ident(name), equals, value @ ..]
                if is_punct(equals, '=') && !value.is_empty() =>
            {
                Ok(plain(name, value))
            }
            [token, ..] => {
                let mut message =
                    "an option has the form `name`, `name = value` or `unsafe(name)`".to_owned();
                if part.iter().any(|token| is_punct(token, '>')) {
                    message.push_str("; a value with commas needs parentheses");
                }
                if matches!(part, [word, group] if !is_word(word, "unsafe") && is_group(group, Delimiter::Parenthesis))
                {
                    message.push_str("; for a method with several parameters, use the builder");
                }
                Err(Misuse::at(token.span(), message))
            }
            [] => {
                let place = first.map_or_else(proc_macro::Span::call_site, TokenTree::span);
                Err(Misuse::at(place, "an option is missing before a comma"))
            }
        }
    }

    /// Returns the call of the method that has the name of the option.
    fn call(&self) -> TokenStream {
        let mut tokens = code(".");
        let mut arguments = parentheses(self.value.clone());
        // An error in the number of arguments belongs to the option.
        arguments.set_span(self.name.span());
        tokens.extend([TokenTree::from(self.name.clone()), arguments.into()]);
        tokens
    }

    fn builder_statement(&self) -> TokenStream {
        let mut value = code("builder");
        value.extend(self.call());
        let mut statement = code("let builder =");
        match &self.unsafe_word {
            Some(word) => statement.extend([
                TokenTree::from(word.clone()),
                Group::new(Delimiter::Brace, value).into(),
            ]),
            None => statement.extend(value),
        }
        statement.extend(code(";"));
        statement
    }
}
