//! The text form of DiskSim's parameters: blocks of `name = value`.

use crate::profile::ProfileError;

/// What one import may hold in memory, so that hostile text cannot take more: bytes read, and values with
/// blocks.
const BYTES_MAX: usize = 32 << 20;
const VALUES_MAX: usize = 1 << 20;
/// Blocks and lists within each other, files within files included.
const DEPTH_MAX: usize = 32;

/// Where something stands.
#[derive(Clone, Debug)]
pub(super) struct Place {
    file: std::rc::Rc<str>,
    line: usize,
    column: usize,
}

impl Place {
    pub(super) fn error(&self, what: impl Into<String>) -> ProfileError {
        let Place { file, line, column } = self;
        ProfileError::Malformed { name: file.to_string(), line: *line, column: *column, what: what.into() }
    }
}

#[derive(Debug)]
pub(super) enum Value {
    Number(f64),
    Word(String),
    List(Vec<(Place, Value)>),
    Block(Block),
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) place: Place,
    pub(super) kind: String,
    pub(super) name: String,
    parameters: Vec<(String, Place, Value)>,
}

impl Block {
    pub(super) fn find(&self, name: &str) -> Option<(&Place, &Value)> {
        self.parameters.iter().find(|p| p.0 == name).map(|p| (&p.1, &p.2))
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Mark(char),
}

/// Gives the text of a file that another names, or says why not.
pub(super) type Resolve<'r> = dyn FnMut(&str) -> Result<String, String> + 'r;

pub(super) struct Parser<'r> {
    resolve: &'r mut Resolve<'r>,
    bytes: usize,
    values: usize,
    depth: usize,
}

/// The tokens of a file that are still to come.
struct Tokens<'t> {
    file: std::rc::Rc<str>,
    rest: std::iter::Peekable<std::str::CharIndices<'t>>,
    line: usize,
    column: usize,
    peeked: Option<(Token, Place)>,
}

impl Tokens<'_> {
    fn step(&mut self) -> Option<char> {
        let (_, c) = self.rest.next()?;
        if c == '\n' {
            (self.line, self.column) = (self.line + 1, 1);
        } else {
            self.column += 1;
        }
        Some(c)
    }

    fn place(&self) -> Place {
        Place { file: self.file.clone(), line: self.line, column: self.column }
    }

    fn next(&mut self) -> Option<(Token, Place)> {
        if let Some(t) = self.peeked.take() {
            return Some(t);
        }
        loop {
            let c = self.rest.peek()?.1;
            if c == '#' {
                while self.rest.peek().is_some_and(|c| c.1 != '\n') {
                    self.step();
                }
            } else if c.is_whitespace() {
                self.step();
            } else {
                break;
            }
        }
        let place = self.place();
        let is_mark = |c: char| matches!(c, '{' | '}' | '[' | ']' | '=' | ',');
        let first = self.step()?;
        if is_mark(first) {
            return Some((Token::Mark(first), place));
        }
        let mut word = String::from(first);
        while let Some(c) =
            self.rest.peek().map(|c| c.1).filter(|c| !c.is_whitespace() && !is_mark(*c) && *c != '#')
        {
            word.push(c);
            self.step();
        }
        Some((Token::Word(word), place))
    }

    fn peek(&mut self) -> Option<&Token> {
        if self.peeked.is_none() {
            self.peeked = self.next();
        }
        self.peeked.as_ref().map(|t| &t.0)
    }

    fn need(&mut self, what: &str) -> Result<(Token, Place), ProfileError> {
        let end = self.place();
        self.next().ok_or_else(|| end.error(format!("the text ends, expected {what}")))
    }

    fn word(&mut self, what: &str) -> Result<(String, Place), ProfileError> {
        match self.need(what)? {
            (Token::Word(w), place) => Ok((w, place)),
            (Token::Mark(c), place) => Err(place.error(format!("`{c}`, expected {what}"))),
        }
    }

    fn mark(&mut self, mark: char) -> Result<Place, ProfileError> {
        match self.need(&format!("`{mark}`"))? {
            (Token::Mark(c), place) if c == mark => Ok(place),
            (Token::Mark(c), place) => Err(place.error(format!("`{c}`, expected `{mark}`"))),
            (Token::Word(w), place) => Err(place.error(format!("`{w}`, expected `{mark}`"))),
        }
    }

    /// Passes over what stands between brackets, those within it included.
    fn skip_list(&mut self) -> Result<(), ProfileError> {
        self.mark('[')?;
        let mut open = 1;
        while open > 0 {
            match self.need("`]`")?.0 {
                Token::Mark('[') => open += 1,
                Token::Mark(']') => open -= 1,
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'r> Parser<'r> {
    pub(super) fn new(resolve: &'r mut Resolve<'r>) -> Parser<'r> {
        Parser { resolve, bytes: 0, values: 0, depth: 0 }
    }

    /// All blocks of a text and of the files it names at its top level. What DiskSim needs to
    /// build a system of them (`instantiate`, `topology`) is passed over.
    pub(super) fn blocks(&mut self, text: &str, file: &str) -> Result<Vec<Block>, ProfileError> {
        let mut t = Tokens {
            file: file.into(),
            rest: text.char_indices().peekable(),
            line: 1,
            column: 1,
            peeked: None,
        };
        self.bytes += text.len();
        if self.bytes > BYTES_MAX {
            return Err(t.place().error(format!("more than {BYTES_MAX} bytes in all")));
        }
        let mut blocks = Vec::new();
        while t.peek().is_some() {
            let (word, place) = t.word("a block")?;
            match word.as_str() {
                "source" => blocks.extend(self.source(&mut t)?),
                "instantiate" => {
                    t.skip_list()?;
                    t.word("`as`")?;
                    t.word("a name")?;
                }
                "topology" => {
                    t.word("a component")?;
                    t.word("a name")?;
                    t.skip_list()?;
                }
                _ => blocks.push(self.block(&mut t, word, place)?),
            }
        }
        Ok(blocks)
    }

    fn source(&mut self, t: &mut Tokens<'_>) -> Result<Vec<Block>, ProfileError> {
        let (file, place) = t.word("a file's name")?;
        self.deeper(&place)?;
        let text = (self.resolve)(&file).map_err(|e| place.error(format!("{file}: {e}")))?;
        let blocks = self.blocks(&text, &file)?;
        self.depth -= 1;
        Ok(blocks)
    }

    fn deeper(&mut self, place: &Place) -> Result<(), ProfileError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(place.error(format!("nested deeper than {DEPTH_MAX}")));
        }
        Ok(())
    }

    fn one_more(&mut self, place: &Place) -> Result<(), ProfileError> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(place.error(format!("more than {VALUES_MAX} values")));
        }
        Ok(())
    }

    /// The text of a file that a parameter names.
    pub(super) fn file(&mut self, name: &str, place: &Place) -> Result<String, ProfileError> {
        let text = (self.resolve)(name).map_err(|e| place.error(format!("{name}: {e}")))?;
        self.bytes += text.len();
        if self.bytes > BYTES_MAX {
            return Err(place.error(format!("more than {BYTES_MAX} bytes in all")));
        }
        Ok(text)
    }

    /// A block whose kind has been read.
    fn block(&mut self, t: &mut Tokens<'_>, kind: String, place: Place) -> Result<Block, ProfileError> {
        self.one_more(&place)?;
        self.deeper(&place)?;
        let name = match t.peek() {
            Some(Token::Word(_)) => t.word("a name")?.0,
            _ => String::new(),
        };
        t.mark('{')?;
        let mut parameters = Vec::new();
        loop {
            match t.need("`}`")? {
                (Token::Mark('}'), _) => break,
                (Token::Mark(','), _) => {}
                (Token::Mark(c), place) => return Err(place.error(format!("`{c}`, expected a parameter"))),
                (Token::Word(first), place) => {
                    let mut key = first;
                    while let Some(Token::Word(_)) = t.peek() {
                        key.push(' ');
                        key.push_str(&t.word("`=`")?.0);
                    }
                    t.mark('=')?;
                    let value = self.value(t)?.1;
                    parameters.push((key, place, value));
                }
            }
        }
        self.depth -= 1;
        Ok(Block { place, kind, name, parameters })
    }

    fn value(&mut self, t: &mut Tokens<'_>) -> Result<(Place, Value), ProfileError> {
        let (token, place) = t.need("a value")?;
        self.one_more(&place)?;
        let value = match token {
            Token::Mark('[') => {
                self.deeper(&place)?;
                let mut list = Vec::new();
                loop {
                    match t.peek() {
                        Some(Token::Mark(']')) => break,
                        Some(Token::Mark(',')) => {
                            t.next();
                        }
                        _ => list.push(self.value(t)?),
                    }
                }
                t.mark(']')?;
                self.depth -= 1;
                Value::List(list)
            }
            Token::Mark(c) => return Err(place.error(format!("`{c}`, expected a value"))),
            Token::Word(w) if w == "source" => {
                let mut blocks = self.source(t)?;
                match blocks.pop() {
                    Some(block) => Value::Block(block),
                    None => return Err(place.error("the file holds no block")),
                }
            }
            Token::Word(w) => match w.parse::<f64>() {
                Ok(n) if n.is_finite() => Value::Number(n),
                _ if matches!(t.peek(), Some(Token::Mark('{') | Token::Word(_))) => {
                    Value::Block(self.block(t, w, place.clone())?)
                }
                _ => Value::Word(w),
            },
        };
        Ok((place, value))
    }
}
