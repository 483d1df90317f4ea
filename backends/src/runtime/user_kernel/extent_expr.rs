//! Whole numbers as expressions of named extents: `ceil_div(n, 256)`, `4 * n * m`. Their text parses back.

use std::collections::BTreeMap;
use std::fmt;

/// Named extents and their values.
pub(crate) type NamedExtents = BTreeMap<String, u64>;

/// An expression of extents. Its values are whole numbers from 0 to 2^64 - 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ExtentExpr {
    Number(u64),
    Name(String),
    Binary(ExtentOp, Box<ExtentExpr>, Box<ExtentExpr>),
}

/// An operation on whole numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ExtentOp {
    Add,
    Sub,
    Mul,
    /// Rounded down.
    Div,
    Rem,
    /// Rounded up.
    CeilDiv,
    Min,
    Max,
}

/// How an operation is written, and how tightly it binds; calls bind tightest.
const OPS: [(ExtentOp, &str, u8); 8] = [
    (ExtentOp::Add, "+", 1),
    (ExtentOp::Sub, "-", 1),
    (ExtentOp::Mul, "*", 2),
    (ExtentOp::Div, "/", 2),
    (ExtentOp::Rem, "%", 2),
    (ExtentOp::CeilDiv, "ceil_div", CALL),
    (ExtentOp::Min, "min", CALL),
    (ExtentOp::Max, "max", CALL),
];
const CALL: u8 = 3;
/// Parentheses and calls inside of each other at most.
const MOST_DEPTH: usize = 64;

impl ExtentOp {
    fn row(self) -> (&'static str, u8) {
        let found = OPS.iter().find(|row| row.0 == self);
        found.map_or(("", CALL), |&(_, name, level)| (name, level))
    }
}

/// What is wrong with the text of an expression, and at which byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExprError {
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl ExtentExpr {
    /// Reads an expression: numbers, names, `+ - * / %`, parentheses, and `ceil_div`, `min` and `max` of two.
    pub(crate) fn parse(text: &str) -> Result<ExtentExpr, ExprError> {
        let mut reader = ExprReader { text, at: 0, depth: 0 };
        let found = reader.level(1)?;
        match reader.rest() {
            "" => Ok(found),
            _ => Err(reader.wrong("expected an operator or the end")),
        }
    }

    /// The value where extents have these values; what is wrong with it otherwise.
    pub(crate) fn value(&self, of: &NamedExtents) -> Result<u64, String> {
        match self {
            ExtentExpr::Number(n) => Ok(*n),
            ExtentExpr::Name(name) => {
                of.get(name).copied().ok_or_else(|| format!("no extent is called `{name}`"))
            }
            ExtentExpr::Binary(op, a, b) => {
                let (a, b) = (a.value(of)?, b.value(of)?);
                let found = match op {
                    ExtentOp::Add => a.checked_add(b),
                    ExtentOp::Sub => a.checked_sub(b),
                    ExtentOp::Mul => a.checked_mul(b),
                    ExtentOp::Div => a.checked_div(b),
                    ExtentOp::Rem => a.checked_rem(b),
                    ExtentOp::CeilDiv => (b > 0).then(|| a.div_ceil(b)),
                    ExtentOp::Min => Some(a.min(b)),
                    ExtentOp::Max => Some(a.max(b)),
                };
                found.ok_or_else(|| match op {
                    ExtentOp::Sub => format!("`{self}` is {a} - {b}, which is below 0"),
                    ExtentOp::Add | ExtentOp::Mul => format!("`{self}` is 2^64 or more"),
                    _ => format!("`{self}` divides {a} by 0"),
                })
            }
        }
    }

    /// Calls `see` with each name in it.
    pub(crate) fn names(&self, see: &mut dyn FnMut(&str)) {
        match self {
            ExtentExpr::Number(_) => {}
            ExtentExpr::Name(name) => see(name),
            ExtentExpr::Binary(_, a, b) => {
                a.names(see);
                b.names(see);
            }
        }
    }

    fn level(&self) -> u8 {
        match self {
            ExtentExpr::Binary(op, ..) => op.row().1,
            ExtentExpr::Number(_) | ExtentExpr::Name(_) => CALL,
        }
    }
}

impl fmt::Display for ExtentExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtentExpr::Number(n) => write!(f, "{n}"),
            ExtentExpr::Name(name) => f.write_str(name),
            ExtentExpr::Binary(op, a, b) => {
                let (name, level) = op.row();
                if level == CALL {
                    return write!(f, "{name}({a}, {b})");
                }
                // Operators of one level go from left to right.
                match a.level() < level {
                    true => write!(f, "({a})")?,
                    false => write!(f, "{a}")?,
                }
                match b.level() <= level {
                    true => write!(f, " {name} ({b})"),
                    false => write!(f, " {name} {b}"),
                }
            }
        }
    }
}

/// Reads an expression from its beginning.
struct ExprReader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> ExprReader<'t> {
    fn wrong(&self, message: impl Into<String>) -> ExprError {
        ExprError { at: self.at, message: message.into() }
    }

    /// What is left, without space before it.
    fn rest(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    /// Takes a sign, if it comes next.
    fn accepts(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len() } else { 0 };
        found
    }

    /// Operators that bind as tightly as this, or tighter.
    fn level(&mut self, level: u8) -> Result<ExtentExpr, ExprError> {
        if level == CALL {
            return self.single();
        }
        let mut found = self.level(level + 1)?;
        loop {
            let rest = self.rest();
            let next = OPS.iter().find(|row| row.2 == level && rest.starts_with(row.1));
            let Some(&(op, sign, _)) = next else { return Ok(found) };
            self.at += sign.len();
            let right = self.level(level + 1)?;
            found = ExtentExpr::Binary(op, Box::new(found), Box::new(right));
        }
    }

    /// A number, a name, a call, or what stands in parentheses.
    fn single(&mut self) -> Result<ExtentExpr, ExprError> {
        let rest = self.rest();
        if rest.starts_with('(') {
            self.at += 1;
            let inner = self.inner()?;
            self.closed()?;
            return Ok(inner);
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = word.parse();
            let number = number
                .map_err(|_| self.wrong(format!("`{word}` is no number from 0 to 2^64 - 1")))?;
            self.at += word.len();
            return Ok(ExtentExpr::Number(number));
        }
        if word.is_empty() {
            return Err(self.wrong("expected a number, a name or `(`"));
        }
        let begin = self.at;
        self.at += word.len();
        if !self.accepts("(") {
            return Ok(ExtentExpr::Name(word.into()));
        }
        let op = OPS.iter().find(|row| row.2 == CALL && row.1 == word);
        let Some(&(op, ..)) = op else {
            let message = format!("`{word}` is no function: there are ceil_div, min and max");
            return Err(ExprError { at: begin, message });
        };
        let left = self.inner()?;
        if !self.accepts(",") {
            return Err(self.wrong("expected `,`"));
        }
        let right = self.inner()?;
        self.closed()?;
        Ok(ExtentExpr::Binary(op, Box::new(left), Box::new(right)))
    }

    /// An expression in parentheses.
    fn inner(&mut self) -> Result<ExtentExpr, ExprError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.wrong(format!("there are more than {MOST_DEPTH} parentheses")));
        }
        let found = self.level(1)?;
        self.depth -= 1;
        Ok(found)
    }

    fn closed(&mut self) -> Result<(), ExprError> {
        match self.accepts(")") {
            true => Ok(()),
            false => Err(self.wrong("expected `)`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<u64, String> {
        let of = NamedExtents::from([("n".into(), 1000), ("m".into(), 7)]);
        ExtentExpr::parse(text).map_err(|e| format!("{}: {}", e.at, e.message))?.value(&of)
    }

    #[test]
    fn expressions_have_the_values_of_arithmetic() {
        for (text, due) in [
            ("n", 1000),
            ("2 + 3 * m - 1", 22),
            ("(2 + 3) * m", 35),
            ("n / m / 2", 71),
            ("n / (m / 2)", 333),
            ("n % 256", 232),
            ("ceil_div(n, 256)", 4),
            ("min(n, m) + max(n, m)", 1007),
            ("100 - 10 - 1", 89),
            ("100 - (10 - 1)", 91),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(value(text), Ok(due), "{text}");
            let read = ExtentExpr::parse(text).expect("reads");
            assert_eq!(ExtentExpr::parse(&read.to_string()), Ok(read), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        for (text, due) in [
            ("", "0: expected a number, a name or `(`"),
            ("n +", "3: expected a number, a name or `(`"),
            ("n m", "2: expected an operator or the end"),
            ("ceil_div(n 2)", "11: expected `,`"),
            ("(n", "2: expected `)`"),
            ("pow(n, 2)", "0: `pow` is no function: there are ceil_div, min and max"),
            (
                "1 + 18446744073709551616",
                "4: `18446744073709551616` is no number from 0 to 2^64 - 1",
            ),
            ("k", "no extent is called `k`"),
            ("m - n", "`m - n` is 7 - 1000, which is below 0"),
            ("n / (m - 7)", "`n / (m - 7)` divides 1000 by 0"),
            ("ceil_div(n, 0)", "`ceil_div(n, 0)` divides 1000 by 0"),
            ("n * 18446744073709551615", "`n * 18446744073709551615` is 2^64 or more"),
        ] {
            assert_eq!(value(text), Err(due.into()), "{text}");
        }
        let deep = format!("{}n{}", "(".repeat(100), ")".repeat(100));
        assert!(value(&deep).is_err_and(|m| m.contains("more than 64 parentheses")));
    }
}
