//! A reader of Lua that finds the uses of globals. It resolves local variables as the compiler
//! does. The source has been compiled before, so its nesting is bounded.

use super::lexer::{Kind, Token};

/// A use of a global, or of fields of a global table.
#[derive(Debug)]
pub(super) struct Use<'a> {
    /// The names, as in `process.send`.
    pub(super) path: Vec<&'a str>,
    pub(super) act: Act<'a>,
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Debug)]
pub(super) enum Act<'a> {
    Read,
    Write,
    Call(Arguments<'a>),
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Arguments<'a> {
    pub(super) count: usize,
    /// `true` if the last one may be any number of values.
    pub(super) is_open: bool,
    /// The text of each that is a string in the source.
    pub(super) texts: Vec<Option<&'a str>>,
}

/// The uses of globals in a source.
#[derive(Debug, Default)]
pub(super) struct Uses<'a> {
    pub(super) uses: Vec<Use<'a>>,
    /// `true` if the program may define globals by names that the source does not contain.
    pub(super) is_dynamic: bool,
}

/// The kind of an expression.
enum Shape<'a> {
    /// A global, or a field of one. It has not been recorded as a use yet.
    Path(Vec<&'a str>, Token<'a>),
    Text(&'a str),
    /// Any number of values.
    Many,
    One,
}

pub(super) fn parse<'a>(tokens: &[Token<'a>]) -> Uses<'a> {
    let mut parser = Parser { tokens, at: 0, scopes: vec![Vec::new()], found: Uses::default() };
    parser.statements();
    parser.found
}

struct Parser<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
    /// The local variables of each block.
    scopes: Vec<Vec<&'a str>>,
    found: Uses<'a>,
}

const BINARY: &[&str] = &[
    "or", "and", "<", ">", "<=", ">=", "~=", "==", "|", "~", "&", "<<", ">>", "..", "+", "-", "*",
    "/", "//", "%", "^",
];

impl<'a> Parser<'_, 'a> {
    fn token(&self) -> Token<'a> {
        // The last token is the end, and it stays.
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn is(&self, word: &str) -> bool {
        self.token().kind == Kind::Word(word)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.token();
        self.at += 1;
        token
    }

    fn accept(&mut self, word: &str) -> bool {
        let is = self.is(word);
        self.at += usize::from(is);
        is
    }

    fn name(&mut self) -> &'a str {
        match self.next().kind {
            Kind::Name(name) => name,
            _ => "",
        }
    }

    fn declare(&mut self, name: &'a str) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(name);
        }
    }

    /// Returns `true` for a local variable. If the environment is one, no name is a global.
    fn is_local(&self, name: &str) -> bool {
        self.scopes.iter().flatten().any(|local| *local == name || *local == "_ENV")
    }

    fn record(&mut self, path: Vec<&'a str>, at: Token<'a>, act: Act<'a>) {
        // `_G.name` is the global `name`.
        let path = match path.strip_prefix(&["_G"]) {
            Some(rest) if !rest.is_empty() => rest.to_vec(),
            _ => path,
        };
        self.found.uses.push(Use { path, act, line: at.line, column: at.column });
    }

    /// Records the use of a value.
    fn read(&mut self, shape: Shape<'a>) {
        if let Shape::Path(path, at) = shape {
            self.record(path, at, Act::Read);
        }
    }

    fn write(&mut self, shape: Shape<'a>) {
        if let Shape::Path(path, at) = shape {
            self.record(path, at, Act::Write);
        }
    }

    /// Takes the statements of a block. The word that ends the block stays.
    fn statements(&mut self) {
        loop {
            match self.token().kind {
                Kind::End | Kind::Word("end" | "else" | "elseif" | "until") => return,
                _ => self.statement(),
            }
        }
    }

    fn block(&mut self) {
        self.scopes.push(Vec::new());
        self.statements();
        self.scopes.pop();
    }

    fn statement(&mut self) {
        let Kind::Word(word) = self.token().kind else { return self.expression_statement() };
        match word {
            ";" | "break" => {
                self.next();
            }
            "goto" => self.at += 2,
            "::" => self.at += 3,
            "do" => {
                self.next();
                self.block();
                self.accept("end");
            }
            "while" => {
                self.next();
                self.expression();
                self.accept("do");
                self.block();
                self.accept("end");
            }
            "repeat" => {
                self.next();
                self.scopes.push(Vec::new());
                self.statements();
                self.accept("until");
                self.expression();
                self.scopes.pop();
            }
            "if" => self.conditional(),
            "for" => self.iteration(),
            "function" => self.function_statement(),
            "local" => self.local(),
            "return" => {
                self.next();
                if !matches!(
                    self.token().kind,
                    Kind::End | Kind::Word("end" | "else" | "elseif" | "until" | ";")
                ) {
                    self.expressions();
                }
            }
            _ => self.expression_statement(),
        }
    }

    fn conditional(&mut self) {
        while self.accept("if") || self.accept("elseif") {
            self.expression();
            self.accept("then");
            self.block();
        }
        if self.accept("else") {
            self.block();
        }
        self.accept("end");
    }

    fn iteration(&mut self) {
        self.next();
        let mut names = vec![self.name()];
        while self.accept(",") {
            names.push(self.name());
        }
        if !self.accept("=") {
            self.accept("in");
        }
        self.expressions();
        self.accept("do");
        self.scopes.push(names);
        self.block();
        self.scopes.pop();
        self.accept("end");
    }

    fn function_statement(&mut self) {
        self.next();
        let mut shape = self.variable();
        let mut has_self = false;
        while self.is(".") || self.is(":") {
            has_self = self.next().kind == Kind::Word(":");
            let name = self.name();
            shape = self.field(shape, name);
        }
        self.write(shape);
        self.body(has_self);
    }

    fn local(&mut self) {
        self.next();
        if self.accept("function") {
            let name = self.name();
            self.declare(name);
            return self.body(false);
        }
        let mut names = Vec::new();
        loop {
            names.push(self.name());
            if self.accept("<") {
                self.at += 2;
            }
            if !self.accept(",") {
                break;
            }
        }
        if self.accept("=") {
            self.expressions();
        }
        names.into_iter().for_each(|name| self.declare(name));
    }

    /// Takes a call or an assignment.
    fn expression_statement(&mut self) {
        let before = self.at;
        let mut targets = vec![self.suffixed()];
        while self.accept(",") {
            targets.push(self.suffixed());
        }
        if self.accept("=") {
            self.expressions();
            targets.into_iter().for_each(|target| self.write(target));
        } else if self.at == before {
            // Not Lua, which cannot be here. It must not be read forever.
            self.next();
        }
    }

    /// Takes the parameters and the block of a function.
    fn body(&mut self, has_self: bool) {
        let mut parameters = Vec::new();
        if has_self {
            parameters.push("self");
        }
        self.accept("(");
        while !self.accept(")") && self.token().kind != Kind::End {
            if let Kind::Name(name) = self.next().kind {
                parameters.push(name);
            }
        }
        self.scopes.push(parameters);
        self.block();
        self.scopes.pop();
        self.accept("end");
    }

    fn expressions(&mut self) -> Arguments<'a> {
        let mut arguments = Arguments::default();
        loop {
            let shape = self.operation();
            arguments.count += 1;
            arguments.is_open = matches!(shape, Shape::Many);
            arguments.texts.push(if let Shape::Text(text) = shape { Some(text) } else { None });
            self.read(shape);
            if !self.accept(",") {
                return arguments;
            }
        }
    }

    fn expression(&mut self) {
        let shape = self.operation();
        self.read(shape);
    }

    /// Takes an expression with its binary operators. Their precedence does not matter here.
    fn operation(&mut self) -> Shape<'a> {
        let mut shape = self.operand();
        let mut is_value = true;
        while let Kind::Word(operator) = self.token().kind
            && BINARY.contains(&operator)
        {
            self.next();
            // A comparison with nil is how a program asks if a global exists.
            let asks = matches!(operator, "==" | "~=") && self.is("nil");
            if !asks {
                self.read(shape);
            }
            shape = self.operand();
            is_value = false;
        }
        if is_value {
            return shape;
        }
        self.read(shape);
        Shape::One
    }

    fn operand(&mut self) -> Shape<'a> {
        let token = self.token();
        match token.kind {
            Kind::Word("not" | "-" | "~" | "#") => {
                self.next();
                let shape = self.operand();
                self.read(shape);
                Shape::One
            }
            Kind::Word("...") => {
                self.next();
                Shape::Many
            }
            Kind::Word("function") => {
                self.next();
                self.body(false);
                Shape::One
            }
            Kind::Word("{") => {
                self.table();
                Shape::One
            }
            Kind::Word("(") | Kind::Name(_) => self.suffixed(),
            Kind::Text(text) => {
                self.next();
                text.map_or(Shape::One, Shape::Text)
            }
            Kind::End => Shape::One,
            Kind::Number | Kind::Word(_) => {
                self.next();
                Shape::One
            }
        }
    }

    fn table(&mut self) {
        self.next();
        while !self.accept("}") && self.token().kind != Kind::End {
            if self.accept("[") {
                self.expression();
                self.accept("]");
                self.accept("=");
            } else if matches!(self.token().kind, Kind::Name(_))
                && self.tokens.get(self.at + 1).is_some_and(|next| next.kind == Kind::Word("="))
            {
                self.at += 2;
            }
            self.expression();
            if !self.accept(",") {
                self.accept(";");
            }
        }
    }

    fn variable(&mut self) -> Shape<'a> {
        let token = self.next();
        match token.kind {
            Kind::Name(name) if !self.is_local(name) => Shape::Path(vec![name], token),
            _ => Shape::One,
        }
    }

    fn field(&mut self, shape: Shape<'a>, name: &'a str) -> Shape<'a> {
        match shape {
            Shape::Path(mut path, at) => {
                path.push(name);
                Shape::Path(path, at)
            }
            _ => Shape::One,
        }
    }

    /// Takes a name or an expression in parentheses, and the fields and calls that follow.
    fn suffixed(&mut self) -> Shape<'a> {
        let mut shape = if self.accept("(") {
            self.expression();
            self.accept(")");
            Shape::One
        } else {
            self.variable()
        };
        loop {
            match self.token().kind {
                Kind::Word(".") => {
                    self.next();
                    let name = self.name();
                    shape = self.field(shape, name);
                }
                Kind::Word("[") => shape = self.index(shape),
                Kind::Word(":") => {
                    self.at += 2;
                    self.read(shape);
                    self.arguments();
                    shape = Shape::Many;
                }
                Kind::Word("(" | "{") | Kind::Text(_) => {
                    let arguments = self.arguments();
                    if let Shape::Path(path, at) = shape {
                        self.record(path, at, Act::Call(arguments));
                    }
                    shape = Shape::Many;
                }
                _ => return shape,
            }
        }
    }

    fn index(&mut self, shape: Shape<'a>) -> Shape<'a> {
        self.next();
        let key = self.operation();
        self.accept("]");
        if let Shape::Text(name) = key {
            return self.field(shape, name);
        }
        self.read(key);
        let is_globals = matches!(&shape, Shape::Path(path, _) if path[..] == ["_G"]);
        self.found.is_dynamic |= is_globals && (self.is("=") || self.is(","));
        self.read(shape);
        Shape::One
    }

    fn arguments(&mut self) -> Arguments<'a> {
        if self.accept("(") {
            if self.accept(")") {
                return Arguments::default();
            }
            let arguments = self.expressions();
            self.accept(")");
            return arguments;
        }
        let texts = match self.token().kind {
            Kind::Text(text) => {
                self.next();
                vec![text]
            }
            _ => {
                self.table();
                vec![None]
            }
        };
        Arguments { count: 1, is_open: false, texts }
    }
}
