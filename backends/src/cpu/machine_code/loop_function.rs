//! Functions of loops over scalars, which Cranelift compiles, and their calls.

use super::{Code, CraneliftModule, EmittedBy, MovedPointers, SweepCompiler, SweepId, failed};
use crate::cpu::codegen::scalar_loop::ScalarLoop;
use adfuse_ir::Diagnostic;

/// A loop's machine code: the table of pointers, the first position, and the number of steps. It returns 1 where its test
/// still holds after them.
type LoopFn = unsafe extern "C" fn(*const *mut u8, i64, i64) -> i64;

impl SweepCompiler {
    /// Whether products are joined with sums.
    pub(in crate::cpu) fn contracts(&self) -> bool {
        self.contract
    }

    /// Compiles a loop.
    pub(in crate::cpu) fn scalar_loop(&mut self, p: &ScalarLoop) -> Result<SweepId, Diagnostic> {
        let mut begun = self.listing.clock();
        let narrow = match &mut self.narrow {
            Some(there) => there,
            none => none.insert(CraneliftModule::new(self.isa.clone())?),
        };
        let (id, mut context) = narrow.declared(&format!("loop{}", self.made.len()), true)?;
        let function = (&mut context, &mut self.context);
        let unit = narrow.emitter(function, &mut self.constants, self.target);
        unit.scalar_loop(p).ok_or_else(|| failed("a loop is not made of primitives"))?;
        self.listing.emitted(&mut begun, &mut context);
        self.bytes += narrow.defined(id, &mut context)?;
        self.listing.made_loop(begun, &context);
        self.made.push(EmittedBy::Cranelift(id));
        self.moves.push(MovedPointers::new());
        self.sizes.push(0);
        Ok(SweepId(self.made.len() - 1))
    }
}

impl Code {
    /// Runs a loop of this many steps, or of at most as many where it has a test; whether the test still holds then.
    ///
    /// # Safety
    /// As for [`Code::run`]: the table must hold pointers to the buffers that the loop names, with room for the elements of
    /// as many steps.
    #[allow(unsafe_code)]
    pub(in crate::cpu) unsafe fn run_loop(
        &self,
        id: SweepId,
        table: &[*mut u8],
        first: i64,
        trips: i64,
    ) -> bool {
        let Some(&function) = self.functions.get(id.0) else { return false };
        // SAFETY: the function was declared with this signature when it was compiled. For its accesses see the caller's promise.
        unsafe {
            let function = std::mem::transmute::<super::SweepFn, LoopFn>(function);
            function(table.as_ptr(), first, trips) != 0
        }
    }
}
