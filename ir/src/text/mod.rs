//! The text form of the IR: every function prints, and what is printed parses back to the same.
//!
//! Reading has three steps, one function at a time: `lexer` finds tokens, `parser` finds the
//! grammar's tree, `resolve` gives names, types and attributes their meaning by inference. All of
//! them report every error they meet as data and go on. `docs/text-format.md` has the grammar.

mod ast;
mod attrs;
mod errors;
pub(crate) mod lexer;
mod parser;
mod phrase;
mod printer;
mod resolve;
mod scope;

pub use printer::{Names, print_function, print_inst, print_module};

use crate::diag::{At, Diagnostic, Kind, Span};
use crate::module::Module;
use crate::op::Op;
use hashbrown::{HashMap, HashSet};
use parser::Parser;
use resolve::Resolver;

/// What a text may hold at most; beyond any of these is an error, never a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of text; at most `u32::MAX` whatever is asked for, since places are 32 bits wide.
    pub source: usize,
    /// Functions of a module.
    pub functions: usize,
    /// Symbols of a function.
    pub symbols: usize,
    /// Parameters, or results, of a function or region.
    pub params: usize,
    /// Instructions of a module.
    pub insts: usize,
    /// Operands, or results, of an instruction.
    pub operands: usize,
    /// Attributes of an instruction.
    pub attrs: usize,
    /// Elements of a list in an attribute.
    pub list: usize,
    /// Regions within regions, and regions of one instruction.
    pub nesting: usize,
    /// Errors that are reported; reading stops there.
    pub diagnostics: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            source: 64 << 20,
            functions: 1 << 16,
            symbols: 256,
            params: 1 << 16,
            insts: 1_000_000,
            operands: 4096,
            attrs: 64,
            list: 1 << 20,
            nesting: 64,
            diagnostics: 50,
        }
    }
}

/// Reads a module; or all that is wrong with the text, in its order.
///
/// Every instruction is inferred as it is read. What spans functions (callees, custom rules) and
/// the use of effect tokens is left to the verifier, for which instructions keep their places.
pub fn parse(source: &str) -> Result<Module, Vec<Diagnostic>> {
    parse_with(source, &Limits::default())
}

/// Reads a module under other limits.
pub fn parse_with(source: &str, limits: &Limits) -> Result<Module, Vec<Diagnostic>> {
    let ops = OpNames::new();
    let mut parser = start(source, limits, &ops)?;
    let mut module = Module::default();
    let mut names: HashSet<&str> = HashSet::new();
    while let Some(ast) = parser.next_function() {
        let name = parser.text(ast.name);
        if !names.insert(name) {
            let m = format!("function `{name}` is defined twice");
            parser.errors.add(ast.name, Kind::Redefinition, m);
        }
        let resolver = Resolver::new(source, &name[1..], &ops, &mut parser.errors);
        if let Some(func) = resolver.function(&ast) {
            module.funcs.push(func);
        }
    }
    parser.errors.finish(module)
}

/// Reads an example of the op table, `"params | instruction"`, into a function `@example` that
/// returns what the instruction does.
pub fn parse_example(example: &str) -> Result<Module, Vec<Diagnostic>> {
    let limits = Limits::default();
    let ops = OpNames::new();
    let mut parser = start(example, &limits, &ops)?;
    let func = parser.example().ok().and_then(|(params, inst)| {
        let resolver = Resolver::new(example, "example", &ops, &mut parser.errors);
        resolver.example(&params, &inst)
    });
    // Without a function there is an error, which `finish` gives instead.
    parser.errors.finish(func.map(Module::single).unwrap_or_default())
}

fn start<'s, 'a>(
    source: &'s str,
    limits: &'a Limits,
    ops: &'a OpNames,
) -> Result<Parser<'s, 'a>, Vec<Diagnostic>> {
    let most = limits.source.min(u32::MAX as usize);
    if source.len() > most {
        let m = format!("the text has {} bytes, the limit is {most}", source.len());
        return Err(vec![Diagnostic::new(At::span(Span::default()), Kind::Limit, m)]);
    }
    Ok(Parser::new(source, limits, ops))
}

/// The ops by name.
struct OpNames(HashMap<&'static str, Op>);

impl OpNames {
    fn new() -> OpNames {
        OpNames(Op::ALL.iter().map(|&op| (op.name(), op)).collect())
    }

    fn get(&self, name: &str) -> Option<Op> {
        self.0.get(name).copied()
    }
}
