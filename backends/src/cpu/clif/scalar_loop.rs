//! Loops over scalars: one function, in which what is carried is block parameters of the loop.

use super::state::{flags, register};
use super::unit::FunctionEmitter;
use crate::cpu::codegen::scalar_loop::{ScalarBlock, ScalarInput, ScalarLoop, ScalarStart};
use adfuse_ir::DType;
use adfuse_ir::scalar::SOp;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, Value, types};
use cranelift_module::Module;

/// What a step of the loop sees.
struct ScalarTurn<'a> {
    table: Value,
    /// What the position is to the blocks.
    index: Value,
    /// Its number among the elements of arrays.
    position: Value,
    carries: &'a [Value],
}

impl FunctionEmitter<'_, '_> {
    /// Emits the whole function, of the table of pointers, the first position and the number of steps, of which there are at
    /// most this many where the loop has a test. It returns 1 where the test still holds after them, else 0. `None` where a
    /// block holds what no expanded program does.
    pub(crate) fn scalar_loop(mut self, p: &ScalarLoop) -> Option<()> {
        let entry = self.b.create_block();
        self.b.append_block_params_for_function_params(entry);
        self.b.switch_to_block(entry);
        self.b.seal_block(entry);
        let given = self.b.block_params(entry);
        let (&table, &first, &trips) = (given.first()?, given.get(1)?, given.get(2)?);
        let wholes = [self.wholes(table, p.test.as_ref()), self.wholes(table, Some(&p.step))];
        let head = self.b.create_block();
        let (inside, done) = (self.b.create_block(), self.b.create_block());
        let turn = self.b.append_block_param(head, types::I64);
        let mut start: Vec<BlockArg> = vec![self.long(0).into()];
        let mut now = Vec::new();
        for carry in &p.carries {
            now.push(self.b.append_block_param(head, register(carry.dtype)));
            let value = match carry.start {
                ScalarStart::Literal(l) => self.literal(l),
                ScalarStart::At(at) => {
                    let at = self.table_entry(table, at);
                    self.load_element(carry.dtype, at, 0)
                }
            };
            start.push(value.into());
        }
        self.b.ins().jump(head, &start);
        self.b.switch_to_block(head);
        let more = self.b.ins().icmp(IntCC::SignedLessThan, turn, trips);
        let asked = match &p.test {
            None => more,
            Some(test) => {
                let at = ScalarTurn { table, index: turn, position: turn, carries: &now };
                let holds = self.scalar_block(test, &at, &wholes[0])?;
                *holds.first()?
            }
        };
        match p.test {
            None => self.b.ins().brif(asked, inside, &[], done, &[]),
            Some(_) => {
                let goes_on = self.b.create_block();
                self.b.ins().brif(asked, goes_on, &[], done, &[]);
                self.b.seal_block(goes_on);
                self.b.switch_to_block(goes_on);
                let excess = self.b.create_block();
                self.b.ins().brif(more, inside, &[], excess, &[]);
                self.b.seal_block(excess);
                self.b.switch_to_block(excess);
                let one = self.long(1);
                self.b.ins().return_(&[one])
            }
        };
        self.b.seal_block(inside);
        self.b.switch_to_block(inside);
        let next = self.scalar_turn(p, [table, first, trips, turn], &now, &wholes[1])?;
        let one = self.long(1);
        let after = self.b.ins().iadd(turn, one);
        let handed: Vec<BlockArg> =
            std::iter::once(after).chain(next).map(BlockArg::from).collect();
        self.b.ins().jump(head, &handed);
        self.b.seal_block(head);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        for (carry, &value) in p.carries.iter().zip(&now) {
            let at = self.table_entry(table, carry.to);
            self.b.ins().store(flags(), value, at, 0);
        }
        let zero = self.long(0);
        self.b.ins().return_(&[zero]);
        let config = self.module.target_config();
        self.b.finalize(config);
        Some(())
    }

    /// A step: what is carried on. Elements of stacks are stored.
    fn scalar_turn(
        &mut self,
        p: &ScalarLoop,
        [table, first, trips, turn]: [Value; 4],
        now: &[Value],
        wholes: &[Option<Value>],
    ) -> Option<Vec<Value>> {
        let position = match p.reverse {
            false => turn,
            true => {
                let left = self.b.ins().isub(trips, turn);
                let one = self.long(1);
                self.b.ins().isub(left, one)
            }
        };
        let index = self.b.ins().iadd(first, position);
        let index = match register(p.index) {
            types::I64 => index,
            narrow => self.b.ins().ireduce(narrow, index),
        };
        let at = ScalarTurn { table, index, position, carries: now };
        let mut outputs = self.scalar_block(&p.step, &at, wholes)?;
        let stacked = outputs.split_off(p.carries.len());
        for (&stack, value) in p.stacks.iter().zip(stacked) {
            let bytes = i64::from(self.b.func.dfg.value_type(value).bytes());
            let at = self.element_of(table, stack, position, bytes);
            self.b.ins().store(flags(), value, at, 0);
        }
        Some(outputs)
    }

    /// The values of a block's outputs.
    fn scalar_block(
        &mut self,
        block: &ScalarBlock,
        at: &ScalarTurn<'_>,
        wholes: &[Option<Value>],
    ) -> Option<Vec<Value>> {
        let mut values: Vec<Option<Value>> = vec![None; block.values];
        for (&(v, input), whole) in block.given.iter().zip(wholes) {
            values[v] = Some(match input {
                ScalarInput::Index => at.index,
                ScalarInput::Carry(k) => *at.carries.get(k)?,
                ScalarInput::Element(from, d) => {
                    let at = self.element_of(at.table, from, at.position, d.bytes() as i64);
                    self.load_element(d, at, 0)
                }
                ScalarInput::Whole(..) => (*whole)?,
                ScalarInput::Literal(l) => self.literal(l),
            });
        }
        for stage in &block.stages {
            let mut known: Vec<Value> = Vec::new();
            for inst in stage.program.insts.values() {
                let args: Vec<Value> =
                    inst.args.iter().map(|a| known[a.as_u32() as usize]).collect();
                known.push(match inst.op {
                    SOp::Param(k) => values[*stage.params.get(k as usize)?]?,
                    _ => self.scalar(inst, stage.program.source(inst), &args)?,
                });
            }
            for (&(to, stored), v) in stage.outputs.iter().zip(&stage.program.outputs) {
                let dtype = stage.program.insts[*v].dtype;
                let value = known[v.as_u32() as usize];
                let floats = matches!(dtype, DType::F32 | DType::F64);
                values[to] = Some(match stored && floats {
                    true => self.canonical(dtype, value),
                    false => value,
                });
            }
        }
        block.outputs.iter().map(|&v| values[v]).collect()
    }

    /// Loads what stays for all steps.
    fn wholes(&mut self, table: Value, block: Option<&ScalarBlock>) -> Vec<Option<Value>> {
        let given = block.into_iter().flat_map(|b| &b.given);
        let mut all = Vec::new();
        for (_, input) in given {
            all.push(match *input {
                ScalarInput::Whole(at, d) => {
                    let at = self.table_entry(table, at);
                    Some(self.load_element(d, at, 0))
                }
                _ => None,
            });
        }
        all
    }

    fn table_entry(&mut self, table: Value, number: u32) -> Value {
        let offset = i32::try_from(u64::from(number) * 8).unwrap_or_default();
        self.b.ins().load(types::I64, MemFlagsData::trusted(), table, offset)
    }

    /// The address of the element of an array at a position.
    fn element_of(&mut self, table: Value, array: u32, position: Value, bytes: i64) -> Value {
        let start = self.table_entry(table, array);
        let distance = self.times(position, bytes);
        self.b.ins().iadd(start, distance)
    }
}
