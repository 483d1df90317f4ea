//! The text form of the IR: every function prints, and what is printed parses back to the same.
//!
//! Reading has three steps, one function at a time: `lexer` finds tokens, `parser` finds the
//! grammar's tree, `resolve` gives names, types and attributes their meaning by inference. All of
//! them report every error they meet as data and go on. `docs/text-format.md` has the grammar.

mod ast;
mod attrs;
mod checkpoint;
mod errors;
mod foreign;
mod hints;
pub(crate) mod lexer;
mod limits;
mod misfit;
mod op_names;
mod parser;
mod phrase;
mod printer;
mod resolve;
mod scope;

pub use limits::Limits;
pub use printer::{Names, print_function, print_inst, print_module};

use crate::diag::{At, Diagnostic, Kind, Span};
use crate::module::Module;
use hashbrown::HashSet;
use op_names::OpNames;
use parser::Parser;
use resolve::Resolver;

/// Reads a module.
///
/// Every instruction is inferred as it is read. What spans functions (callees, custom rules) and
/// the use of effect tokens is left to the verifier, for which instructions keep their places.
///
/// # Errors
/// All that is wrong with the text, in its order, each with its span. A text beyond the limits is [`Kind::Limit`].
pub fn parse(source: &str) -> Result<Module, Vec<Diagnostic>> {
    parse_with(source, &Limits::default())
}

/// Reads a module under other limits.
///
/// # Errors
/// As [`parse`].
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
///
/// # Errors
/// As [`parse`]; spans are of the example.
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
