//! What a text may hold at most.

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
