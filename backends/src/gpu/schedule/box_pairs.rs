//! Boxes of words: the elements of two neighbours along an axis of the depth become one.

use super::box_word::{BoxWord, PairedDim, PairedPlaces};
use super::convolution::NEAR;
use super::staged_box::{BoxDim, BoxOperand, DEEP, OWN};

impl BoxOperand {
    /// Makes words of two neighbours each along an axis of the depth; `None` where no dimension is that axis alone, or some of its
    /// places are not read.
    pub(super) fn pair(&mut self, axis: usize) -> Option<PairedPlaces> {
        let dim = self.dims.iter().position(|dim| dim.factors[DEEP][axis] != 0)?;
        let (n, made) = (self.extents[DEEP][axis], self.dims[dim].clone());
        let each = made.factors[DEEP][axis];
        let word = each.checked_mul(2)?;
        let (mut least, mut most) = (0, 0);
        for (f, extent) in made.factors[0].iter().zip(&self.extents[0]) {
            let far = f * (extent - 1).max(0);
            (least, most) = (least + far.min(0), most + far.max(0));
        }
        let (first, last) = (made.base + least, made.base + most + each * (n - 1));
        let of_words = made.factors[0].iter().all(|f| f % word == 0);
        let is_read = made.read.start <= first && last < made.read.end;
        if !made.is_of_axis(DEEP, axis) || each <= 0 || !of_words || !is_read {
            return None;
        }
        let step = made.stride.checked_mul(each)?;
        self.origin = self.origin.checked_add(made.base.checked_mul(made.stride)?)?;
        let words = (n + 1) / 2;
        let mut factors = made.factors.clone();
        factors[0].iter_mut().for_each(|f| *f /= word);
        factors[DEEP][axis] = 1;
        let read = least / word..most / word + words;
        let stride = step.checked_mul(2)?;
        self.dims[dim] = BoxDim { stride, extent: words, base: 0, factors, read, span: 1 };
        self.extents[DEEP][axis] = words;
        let ordered = self.dims.windows(2).all(|two| two[0].stride >= two[1].stride);
        if !ordered || n % 2 != 0 && (least, most) != (0, 0) {
            return None;
        }
        self.word = BoxWord::Apart(PairedDim { dim, step, whole: (n % 2 != 0).then_some(n / 2) });
        if step == 1 {
            self.neighbours(n)?;
        } else if !self.has_units() {
            return None;
        }
        Some(PairedPlaces { dim, half: each, word })
    }

    /// Makes words of two neighbours each along an axis of the depth by which windows slide along lines in memory, and says whether
    /// there are such. At which of two elements words begin depends on the windows' own places alone, which lanes do not have
    /// next to each other.
    pub(super) fn slide(&mut self, axis: usize) -> bool {
        let even = |n: i64| n % 2 == 0;
        let Some((line, outer)) = self.dims.split_last_mut() else { return false };
        let [batch, own, deep] = &mut line.factors;
        let moved = own.iter().zip(&self.extents[OWN]).filter(|(f, _)| !even(**f));
        let few = moved.clone().all(|(_, n)| *n < NEAR) && moved.clone().any(|(_, n)| *n > 1);
        let alone = deep.iter().enumerate().all(|(a, f)| *f == i64::from(a == axis));
        let n = self.extents[DEEP][axis];
        let lies = line.stride == 1
            && even(self.origin)
            && outer.iter().all(|dim| even(dim.stride))
            && even(line.read.start)
            && even(line.read.end);
        if !(few && alone && lies && even(n) && batch.iter().all(|&f| even(f))) {
            return false;
        }
        deep[axis] = 2;
        line.span = 2;
        self.extents[DEEP][axis] = n / 2;
        self.word = BoxWord::Sliding;
        true
    }

    /// Whether every word has two elements.
    pub(super) fn has_all(&self) -> bool {
        !matches!(self.word, BoxWord::Apart(PairedDim { whole: Some(_), .. }))
    }

    /// Words are neighbours in memory: all else is counted in words.
    fn neighbours(&mut self, n: i64) -> Option<()> {
        let even = |x: i64| x % 2 == 0;
        if !even(n) || !even(self.origin) || !self.dims.iter().all(|dim| even(dim.stride)) {
            return None;
        }
        self.origin /= 2;
        self.dims.iter_mut().for_each(|dim| dim.stride /= 2);
        self.word = BoxWord::Neighbours;
        Some(())
    }

    /// Whether copies of two elements are aligned along lines of the last dimension.
    fn has_units(&self) -> bool {
        let Some((last, outer)) = self.dims.split_last() else { return false };
        last.stride == 1 && self.origin % 2 == 0 && outer.iter().all(|dim| dim.stride % 2 == 0)
    }
}
