//! Instructions, in the generic form and in the pretty forms of all ops by one grammar: operands, named attributes,
//! words and regions in any order, then types, then further regions.

use super::lexer::{Token, wrong};
use super::parser::Parser;
use super::tree::{Attr, Instruction, Operand, Param, Region};
use adfuse_ir::{Diagnostic, Span};

impl<'a> Parser<'a> {
    /// `%a, %b:2 = op ..`.
    pub(super) fn instruction(&mut self) -> Result<Instruction<'a>, Diagnostic> {
        self.count()?;
        let start = self.here.start;
        let mut inst = Instruction { results: self.results()?, ..Instruction::default() };
        inst.op = match self.here.token {
            Token::Ident(name) | Token::Str(name) => name,
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
        while let Token::Value(name, None) = self.here.token {
            let at = self.advance()?;
            let mut count = 1;
            if self.eat(b':')? {
                let Token::Number(n) = self.here.token else {
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
            Token::End | Token::Punct(b'}') => true,
            Token::Ident("loc") => true,
            Token::Value(..) | Token::Str(_) => self.here.leads && !comma,
            Token::Ident(name) => {
                let op = name.contains('.') || name == "return" || name == "call";
                self.here.leads && !comma && op
            }
            _ => false,
        }
    }

    /// One of the things that stand between an op and its types.
    fn item(&mut self, inst: &mut Instruction<'a>) -> Result<(), Diagnostic> {
        match self.here.token {
            Token::Punct(b',') => {
                self.advance()?;
            }
            Token::Value(..) => {
                let operand = self.operand()?;
                inst.operands.push(operand);
            }
            Token::Symbol(name) => {
                self.advance()?;
                inst.symbol = Some(name);
            }
            Token::Punct(b'(') => self.group(inst)?,
            Token::Punct(b'{') => self.braces(inst)?,
            Token::Punct(b'<') => self.properties(inst)?,
            Token::Ident("dense")
            | Token::Punct(b'[')
            | Token::Str(_)
            | Token::Number(_)
            | Token::Hash(_) => {
                let attr = self.attribute(false)?;
                inst.words.push(attr);
            }
            Token::Ident("inits") => {
                self.advance()?;
                let given = inst.operands.len();
                self.group(inst)?;
                inst.inits.extend(inst.operands.split_off(given));
            }
            Token::Ident(word) => {
                self.advance()?;
                if self.eat(b'=')? {
                    let value = self.attribute(false)?;
                    inst.attrs.push((word, value));
                } else {
                    inst.words.push(Attr::Word(word));
                }
            }
            _ => return Err(self.expected("an operand, an attribute or `:`")),
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<Operand<'a>, Diagnostic> {
        let Token::Value(name, result) = self.here.token else {
            return Err(self.expected("an operand"));
        };
        let at = self.advance()?;
        Ok(Operand { name, result: result.unwrap_or(0), span: Span::new(at.start, at.end) })
    }

    /// `(%a, %b)`, `(%x init: %c)`, `(%i = %0)`, `({region}, {region})`, and named attributes among operands.
    fn group(&mut self, inst: &mut Instruction<'a>) -> Result<(), Diagnostic> {
        self.descend()?;
        self.expect(b'(')?;
        while !self.eat(b')')? {
            match self.here.token {
                Token::Punct(b'{') => {
                    let region = self.region()?;
                    inst.regions.push(region);
                }
                Token::Ident("init") => {
                    self.advance()?;
                    self.expect(b':')?;
                    let init = self.operand()?;
                    inst.inits.push(init);
                }
                Token::Value(name, None) => {
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
            Token::Block(_) | Token::Value(..) => true,
            Token::Ident(name) => name.contains('.') && ahead.next()?.token != Token::Punct(b'='),
            Token::Str(_) => ahead.next()?.token == Token::Punct(b'('),
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
        if ahead.next()?.token != Token::Punct(b'{') {
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
            let types = self.parse_type_list()?;
            if self.here.token == Token::Arrow {
                self.advance()?;
                inst.operand_types = Some(types);
                inst.types = self.parse_types()?;
            } else {
                inst.types = types;
            }
            return Ok(());
        }
        inst.types.push(self.parse_type()?);
        if self.here.token == Token::Arrow {
            self.advance()?;
            inst.operand_types = Some(std::mem::take(&mut inst.types));
            inst.types = self.parse_types()?;
            return Ok(());
        }
        while self.eat(b',')? {
            inst.types.push(self.parse_type()?);
        }
        if self.here.token == Token::Arrow {
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
                Token::Ident("attributes") => {
                    self.advance()?;
                    let entries = self.dictionary()?;
                    inst.attrs.extend(entries);
                }
                Token::Ident("cond" | "do") => {
                    self.advance()?;
                    let mut region = self.region()?;
                    let types = inst.types.iter().cloned();
                    let bound = inst.bound.iter().zip(types);
                    region.params = bound.map(|(&name, ty)| Param { name, ty }).collect();
                    inst.regions.push(region);
                }
                Token::Ident("reducer") => {
                    self.advance()?;
                    let region = self.reducer()?;
                    inst.regions.push(region);
                }
                Token::Ident("loc") => self.skip_location()?,
                Token::Punct(b'{') if !self.here.leads => {
                    let entries = self.dictionary()?;
                    inst.attrs.extend(entries);
                }
                _ => return Ok(()),
            }
        }
    }

    /// `reducer(%a: T, %c: T) (%b: U, %d: U) {..}`: the parameters are all first ones, then all second ones.
    fn reducer(&mut self) -> Result<Region<'a>, Diagnostic> {
        let (mut firsts, mut seconds): (Vec<Param<'a>>, Vec<Param<'a>>) = (Vec::new(), Vec::new());
        while self.is(b'(') {
            let pair = self.params()?;
            let [first, second] = <[Param<'a>; 2]>::try_from(pair).map_err(|_| {
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
