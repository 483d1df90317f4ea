//! Words of two 16-bit floats in registers: taken apart, and joined.

use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::schedule::box_word::BoxWord;

/// The two elements of a register.
fn halves(asm: &mut Asm, word: Reg) -> [Reg; 2] {
    let [low, high] = [0; 2].map(|_| asm.fresh(Class::Half));
    asm.emit(format_args!("mov.b32 {{{low}, {high}}}, {word}"));
    [low, high]
}

/// A register of two elements, the one nearer along the depth below.
pub(super) fn joined(asm: &mut Asm, [low, high]: [Reg; 2]) -> Reg {
    let word = asm.fresh(Class::Word);
    asm.emit(format_args!("mov.b32 {word}, {{{low}, {high}}}"));
    word
}

/// The word of the last element of one word and the first of the next.
pub(super) fn between(asm: &mut Asm, [first, second]: [Reg; 2]) -> Reg {
    let [[_, low], [high, _]] = [first, second].map(|word| halves(asm, word));
    joined(asm, [low, high])
}

/// Both elements of each word of a unit, as they were copied.
pub(super) fn elements_of(asm: &mut Asm, word: BoxWord, copied: &[Reg]) -> Vec<[Reg; 2]> {
    let each: Vec<[Reg; 2]> = copied.iter().map(|&reg| halves(asm, reg)).collect();
    match word {
        BoxWord::Single | BoxWord::Neighbours | BoxWord::Sliding => each,
        BoxWord::Apart(_) => {
            // The first elements of all words, then the second ones.
            let all = each.concat();
            let (first, second) = all.split_at(all.len() / 2);
            first.iter().zip(second).map(|(&a, &b)| [a, b]).collect()
        }
    }
}
