//! Functions to text, in the one canonical form.

use crate::entity::{Inst, Phase, Region, Value};
use crate::function::{CustomRule, Function};
use crate::module::Module;
use crate::types::TensorType;
use crate::words::MAX_NAME;
use cranelift_entity::SecondaryMap;
use hashbrown::{HashMap, HashSet};
use std::fmt::{self, Display, Write};

/// The module's text: its functions with an empty line between them.
pub fn print_module(m: &Module) -> String {
    let texts: Vec<String> = m.funcs.values().map(print_function).collect();
    texts.join("\n")
}

/// The function's text, with a newline at its end.
pub fn print_function(f: &Function) -> String {
    let mut p = Printer::new(f);
    p.function();
    p.out
}

/// One instruction on one line, its regions left out, for messages. Takes time in the size of the
/// function, since values are numbered over all of it.
pub fn print_inst(f: &Function, inst: Inst) -> String {
    let mut p = Printer::new(f);
    p.head(inst);
    for name in f.op(inst).region_names(f.inst(inst).regions.len()).unwrap_or_default() {
        p.put(format_args!(" {name} {{..}}"));
    }
    p.out
}

impl Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_module(self))
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_function(self))
    }
}

struct Printer<'f> {
    func: &'f Function,
    names: Names,
    out: String,
    indent: usize,
}

impl<'f> Printer<'f> {
    fn new(func: &'f Function) -> Printer<'f> {
        Printer { func, names: Names::of(func), out: String::new(), indent: 0 }
    }

    fn put(&mut self, text: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.out, "{text}");
    }

    fn commas<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        for (k, x) in items.iter().enumerate() {
            if k > 0 {
                self.out.push_str(", ");
            }
            item(self, x);
        }
    }

    fn line(&mut self) {
        self.out.push('\n');
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
    }

    fn function(&mut self) {
        let f = self.func;
        self.put(format_args!("func @{}", f.name));
        if !f.symbols.is_empty() {
            self.out.push('<');
            self.commas(&f.symbols, |p, s| p.out.push_str(s.as_str()));
            self.out.push('>');
        }
        self.params(f.body());
        let results = f.results();
        if let [one] = results {
            self.put(format_args!(" -> {}", f.ty(*one)));
        } else {
            self.out.push_str(" -> (");
            self.commas(results, |p, &v| p.put(p.func.ty(v)));
            self.out.push(')');
        }
        match &f.rule {
            Some(CustomRule::Jvp(rule)) => self.put(format_args!(" custom_jvp(@{rule})")),
            Some(CustomRule::Vjp(fwd, bwd)) => {
                self.put(format_args!(" custom_vjp(@{fwd}, @{bwd})"));
            }
            Some(CustomRule::Root(residual)) => {
                self.put(format_args!(" custom_root(@{residual})"));
            }
            None => {}
        }
        if let Some(policy) = &f.checkpoint {
            self.put(format_args!(" {policy}"));
        }
        self.block(f.body(), "return");
        self.out.push('\n');
    }

    fn params(&mut self, region: Region) {
        self.out.push('(');
        let f = self.func;
        self.commas(&f.region(region).params, |p, &v| {
            p.value(v);
            p.put(format_args!(": {}", f.ty(v)));
        });
        self.out.push(')');
    }

    /// ` {`, instructions, `end`, `}`
    fn block(&mut self, region: Region, end: &str) {
        self.out.push_str(" {");
        self.indent += 1;
        let data = self.func.region(region);
        for &inst in &data.insts {
            self.line();
            self.head(inst);
            let count = self.func.inst(inst).regions.len();
            let names = self.func.op(inst).region_names(count).unwrap_or_default();
            for (k, &nested) in self.func.inst(inst).regions.iter().enumerate() {
                self.put(format_args!(" {}", names.get(k).unwrap_or(&"region")));
                if !self.func.region(nested).params.is_empty() {
                    self.params(nested);
                }
                self.block(nested, "yield");
            }
        }
        self.line();
        self.out.push_str(end);
        if !data.results.is_empty() {
            self.out.push(' ');
        }
        self.commas(&data.results, |p, &v| p.value(v));
        self.indent -= 1;
        self.line();
        self.out.push('}');
    }

    /// An instruction up to its regions.
    fn head(&mut self, inst: Inst) {
        let f = self.func;
        let results = f.inst_results(inst);
        self.commas(results, |p, &v| p.value(v));
        let def = f.op(inst).def();
        self.put(format_args!("{}{}", if results.is_empty() { "" } else { " = " }, def.name));
        let args = f.args(inst);
        if !args.is_empty() {
            self.out.push(' ');
        }
        self.commas(args, |p, &v| p.value(v));
        let mut brace = " {";
        for (name, value) in f.attrs(inst).iter() {
            let spec = def.attrs.iter().find(|s| s.name == name);
            if spec.and_then(|s| s.default).is_none_or(|d| d.value() != *value) {
                self.put(format_args!("{brace}{name} = {value}"));
                brace = ", ";
            }
        }
        self.out.push_str(if brace == ", " { "}" } else { "" });
        let types: Vec<&TensorType> = results.iter().map(|&v| f.ty(v)).collect();
        self.out.push_str(if types.is_empty() { " : ()" } else { " : " });
        self.commas(&types, |p, ty| p.put(ty));
        let phase = f.inst(inst).phase;
        if phase != Phase::PRIMAL {
            self.put(format_args!(" {phase}"));
        }
        self.put(f.path(inst));
    }

    fn value(&mut self, v: Value) {
        let _ = match (self.func.literal(v), &self.names.0[v]) {
            (Some(literal), _) => write!(self.out, "{literal}"),
            (None, Name::Number(n)) => write!(self.out, "%{n}"),
            (None, Name::Text(name)) => write!(self.out, "%{name}"),
            // Defined in no region: only in functions that the verifier rejects.
            (None, Name::None) => write!(self.out, "%?{}", v.as_u32()),
        };
    }
}

#[derive(Clone, Default)]
enum Name {
    #[default]
    None,
    Number(u32),
    Text(String),
}

/// The printed name of every value: numbers in printing order, and given names, made unique among
/// those visible together.
pub struct Names(SecondaryMap<Value, Name>);

impl Names {
    /// The names of all values of a function that are not literals.
    pub fn of(f: &Function) -> Names {
        let mut naming = Naming {
            func: f,
            names: SecondaryMap::with_capacity(f.value_count()),
            numbers: 0,
            visible: HashSet::new(),
            order: Vec::new(),
            suffixes: HashMap::new(),
        };
        naming.region(f.body());
        Names(naming.names)
    }

    /// The name of a value, without `%`; empty for a literal.
    pub fn get(&self, v: Value) -> String {
        match &self.0[v] {
            Name::Number(n) => n.to_string(),
            Name::Text(name) => name.clone(),
            Name::None => String::new(),
        }
    }
}

struct Naming<'f> {
    func: &'f Function,
    names: SecondaryMap<Value, Name>,
    numbers: u32,
    visible: HashSet<String>,
    order: Vec<String>,
    suffixes: HashMap<String, u32>,
}

impl Naming<'_> {
    fn region(&mut self, region: Region) {
        let mark = self.order.len();
        let data = self.func.region(region);
        for &v in &data.params {
            self.value(v);
        }
        for &inst in &data.insts {
            for &v in self.func.inst_results(inst) {
                self.value(v);
            }
            for &nested in &self.func.inst(inst).regions {
                self.region(nested);
            }
        }
        for name in self.order.drain(mark..) {
            self.visible.remove(&name);
        }
    }

    fn value(&mut self, v: Value) {
        let Some(wanted) = self.func.name_of(v).and_then(identifier) else {
            self.names[v] = Name::Number(self.numbers);
            self.numbers += 1;
            return;
        };
        let name = self.unique(wanted);
        self.visible.insert(name.clone());
        self.order.push(name.clone());
        self.names[v] = Name::Text(name);
    }

    fn unique(&mut self, wanted: String) -> String {
        if !self.visible.contains(&wanted) {
            return wanted;
        }
        // A suffix must fit into the longest name; names are ASCII here.
        let base = &wanted[..wanted.len().min(MAX_NAME - 12)];
        // Counting on from the last suffix keeps many equal names from taking quadratic time.
        let mut suffix = self.suffixes.get(&wanted).copied().unwrap_or(1);
        let mut name = format!("{base}_{suffix}");
        while self.visible.contains(&name) {
            suffix += 1;
            name = format!("{base}_{suffix}");
        }
        self.suffixes.insert(wanted, suffix + 1);
        name
    }
}

/// A given name as the grammar allows it: other characters become `_`; nothing and numbers are no
/// names.
fn identifier(name: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if name.is_empty() || name.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut out: String = name.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    if !out.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        out.insert(0, '_');
    }
    out.truncate(MAX_NAME - 1);
    Some(out)
}
