//! Instructions, in the generic form and in the pretty forms of all ops by one grammar: operands, named attributes,
//! words and regions in any order, then types, then further regions.

use super::lexer::{MlirToken, wrong};
use super::parser::MlirParser;
use super::tree::{Attribute, Instruction, OperandName, ParamTree, RegionTree};
use adfuse_ir::{Diagnostic, Span};

impl<'a> MlirParser<'a> {
    /// `%a, %b:2 = op ..`.
    pub(super) fn instruction(&mut self) -> Result<Instruction<'a>, Diagnostic> {
        self.count()?;
        let start = self.here.start;
        let mut inst = Instruction { results: self.results()?, ..Instruction::default() };
        inst.op = match self.here.token {
            MlirToken::Ident(name) | MlirToken::Str(name) => name,
            _ => return Err(self.expected("an instruction")),
        };
        inst.op = match inst.op {
            "call" => "func.call",
            "return" => "func.return",
            op => op,
        };
        self.advance()?;
        while !self.is(b':') && !self.ends_here() {
            self.item(&mut inst)?;
        }
        if self.eat(b':')? {
            self.signature(&mut inst)?;
        }
        inst.span = Span::new(start, self.before);
        self.trailing(&mut inst)?;
        Ok(inst)
    }

    fn results(&mut self) -> Result<Vec<(&'a str, u32)>, Diagnostic> {
        let mut results = Vec::new();
        while let MlirToken::Value(name, None) = self.here.token {
            let at = self.advance()?;
            let mut count = 1;
            if self.eat(b':')? {
                let MlirToken::Number(n) = self.here.token else {
                    return Err(self.expected("a number of results"));
                };
                count = n.parse().ok().filter(|n| (1..=4096).contains(n)).ok_or_else(|| {
                    wrong(at.start, self.here.end, "an instruction has from 1 to 4096 results")
                })?;
                self.advance()?;
            }
            results.push((name, count));
            if !self.eat(b',')? {
                break;
            }
        }
        if !results.is_empty() {
            self.expect(b'=')?;
        }
        Ok(results)
    }

    /// Whether the instruction is over without types: the next one, or the end of the block, begins.
    fn ends_here(&self) -> bool {
        let comma = self.lexer.text().as_bytes().get(self.before.wrapping_sub(1)) == Some(&b',');
        match self.here.token {
            MlirToken::End | MlirToken::Punct(b'}') => true,
            MlirToken::Ident("loc") => true,
            MlirToken::Value(..) | MlirToken::Str(_) => self.here.leads && !comma,
            MlirToken::Ident(name) => {
                let op = name.contains('.') || name == "return" || name == "call";
                self.here.leads && !comma && op
            }
            _ => false,
        }
    }

    /// One of the things that stand between an op and its types.
    fn item(&mut self, inst: &mut Instruction<'a>) -> Result<(), Diagnostic> {
        match self.here.token {
            MlirToken::Punct(b',') => {
                self.advance()?;
            }
            MlirToken::Value(..) => {
                let operand = self.operand()?;
                inst.operands.push(operand);
            }
            MlirToken::Symbol(name) => {
                self.advance()?;
                inst.symbol = Some(name);
            }
            MlirToken::Punct(b'(') => self.group(inst)?,
            MlirToken::Punct(b'{') => self.braces(inst)?,
            MlirToken::Punct(b'<') => self.properties(inst)?,
            MlirToken::Ident("dense")
            | MlirToken::Punct(b'[')
            | MlirToken::Str(_)
            | MlirToken::Number(_)
            | MlirToken::Hash(_) => {
                let attr = self.attribute(false)?;
                inst.words.push(attr);
            }
            MlirToken::Ident("inits") => {
                self.advance()?;
                let given = inst.operands.len();
                self.group(inst)?;
                inst.inits.extend(inst.operands.split_off(given));
            }
            MlirToken::Ident(word) => {
                self.advance()?;
                if self.eat(b'=')? {
                    let value = self.attribute(false)?;
                    inst.attrs.push((word, value));
                } else {
                    inst.words.push(Attribute::Word(word));
                }
            }
            _ => return Err(self.expected("an operand, an attribute or `:`")),
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<OperandName<'a>, Diagnostic> {
        let MlirToken::Value(name, result) = self.here.token else {
            return Err(self.expected("an operand"));
        };
        self.advance()?;
        Ok(OperandName { name, result: result.unwrap_or(0) })
    }

    /// `(%a, %b)`, `(%x init: %c)`, `(%i = %0)`, `({region}, {region})`, and named attributes among operands.
    fn group(&mut self, inst: &mut Instruction<'a>) -> Result<(), Diagnostic> {
        self.descend()?;
        self.expect(b'(')?;
        while !self.eat(b')')? {
            match self.here.token {
                MlirToken::Punct(b'{') => {
                    let region = self.region()?;
                    inst.regions.push(region);
                }
                MlirToken::Ident("init") => {
                    self.advance()?;
                    self.expect(b':')?;
                    let init = self.operand()?;
                    inst.inits.push(init);
                }
                MlirToken::Value(name, None) => {
                    let operand = self.operand()?;
                    if self.eat(b'=')? {
                        inst.bound.push(name);
                        let operand = self.operand()?;
                        inst.operands.push(operand);
                    } else {
                        inst.operands.push(operand);
                    }
                }
                _ => self.item(inst)?,
            }
        }
        self.ascend();
        Ok(())
    }

    /// A dictionary of attributes, or a region.
    fn braces(&mut self, inst: &mut Instruction<'a>) -> Result<(), Diagnostic> {
        let mut ahead = self.lexer;
        let region = match ahead.next()?.token {
            MlirToken::Block(_) | MlirToken::Value(..) => true,
            MlirToken::Ident(name) => {
                name.contains('.') && ahead.next()?.token != MlirToken::Punct(b'=')
            }
            MlirToken::Str(_) => ahead.next()?.token == MlirToken::Punct(b'('),
            _ => false,
        };
        if region {
            let region = self.region()?;
            inst.regions.push(region);
        } else {
            let entries = self.dictionary()?;
            inst.attrs.extend(entries);
        }
        Ok(())
    }

    /// `<{attributes}>`; what else stands in angle brackets describes shardings.
    fn properties(&mut self, inst: &mut Instruction<'a>) -> Result<(), Diagnostic> {
        let mut ahead = self.lexer;
        if ahead.next()?.token != MlirToken::Punct(b'{') {
            self.raw_angled()?;
            return Ok(());
        }
        self.advance()?;
        let entries = self.dictionary()?;
        inst.attrs.extend(entries);
        self.expect(b'>')
    }

    fn signature(&mut self, inst: &mut Instruction<'a>) -> Result<(), Diagnostic> {
        if self.is(b'(') {
            inst.types = self.parse_type_list()?;
        } else {
            inst.types.push(self.parse_type()?);
            while self.eat(b',')? {
                inst.types.push(self.parse_type()?);
            }
        }
        if self.here.token == MlirToken::Arrow {
            self.advance()?;
            inst.operand_types = Some(std::mem::take(&mut inst.types));
            inst.types = self.parse_types()?;
        }
        Ok(())
    }

    /// What stands behind the types: `cond {..} do {..}`, `reducer(..) {..}`, `attributes {..}`, a location.
    fn trailing(&mut self, inst: &mut Instruction<'a>) -> Result<(), Diagnostic> {
        loop {
            match self.here.token {
                MlirToken::Ident("attributes") => {
                    self.advance()?;
                    let entries = self.dictionary()?;
                    inst.attrs.extend(entries);
                }
                MlirToken::Ident("cond" | "do") => {
                    self.advance()?;
                    let mut region = self.region()?;
                    let types = inst.types.iter().cloned();
                    let bound = inst.bound.iter().zip(types);
                    let param = |(&name, ty)| ParamTree {
                        name,
                        ty,
                        extent: None,
                        location: "",
                        label: None,
                    };
                    region.params = bound.map(param).collect();
                    inst.regions.push(region);
                }
                MlirToken::Ident("reducer") => {
                    self.advance()?;
                    let region = self.reducer()?;
                    inst.regions.push(region);
                }
                MlirToken::Ident("loc") => inst.location = self.location()?,
                MlirToken::Punct(b'{') if !self.here.leads => {
                    let entries = self.dictionary()?;
                    inst.attrs.extend(entries);
                }
                _ => return Ok(()),
            }
        }
    }

    /// `reducer(%a: T, %c: T) (%b: U, %d: U) {..}`: the parameters are all first ones, then all second ones.
    fn reducer(&mut self) -> Result<RegionTree<'a>, Diagnostic> {
        let (mut firsts, mut seconds): (Vec<ParamTree<'a>>, Vec<ParamTree<'a>>) =
            (Vec::new(), Vec::new());
        while self.is(b'(') {
            let pair = self.params()?;
            let [first, second] = <[ParamTree<'a>; 2]>::try_from(pair).map_err(|_| {
                wrong(self.here.start, self.here.end, "a reducer has pairs of parameters")
            })?;
            firsts.push(first);
            seconds.push(second);
        }
        let mut region = self.region()?;
        firsts.extend(seconds);
        region.params = firsts;
        Ok(region)
    }
}
