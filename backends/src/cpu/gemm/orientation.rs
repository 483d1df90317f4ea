//! Which operand of a product of tiles are the rows, how wide tiles are, and which windows are read in place.

use super::indirect;
use super::{GemmSide, MatrixView, Size};
use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;

/// Columns that are packed at a time, at most.
pub(super) const COLUMNS: usize = 256;

/// Rows and columns of tiles of an instruction set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TileExtents {
    /// Rows of a tile, and of those that end a product, the most first.
    pub(super) heights: [usize; 4],
    /// Columns of a tile and of a narrow one, which are those of a vector.
    pub(super) columns: [usize; 2],
}

/// Which operands of a product are windows that are packed, the left and the right one. The operands need not be there.
pub(in super::super) fn packed_windows(
    size: Size,
    [lhs, rhs]: [&GemmSide<'_>; 2],
    out: MatrixView,
    (dtype, lanes): (DType, u32),
) -> [bool; 2] {
    let bytes = usize::try_from(dtype.bytes()).unwrap_or(8);
    let how = Orientation::of(size, [lhs, rhs], out, TileExtents::of_lanes(lanes, bytes));
    let [of_left, of_right] = match how.turned {
        false => [how.rows_in_place, how.columns_in_place],
        true => [how.columns_in_place, how.rows_in_place],
    };
    let is_window = |side: &GemmSide<'_>| matches!(side, GemmSide::Window(_));
    [is_window(lhs) && !of_left, is_window(rhs) && !of_right]
}

/// How a product is divided into tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Orientation {
    /// Rows and columns are exchanged.
    pub(super) turned: bool,
    /// Tiles are a vector wide.
    pub(super) narrow: bool,
    /// Rows of a window are read where they are.
    pub(super) rows_in_place: bool,
    /// Columns of a window are read where they are.
    pub(super) columns_in_place: bool,
}

/// Tiles beside each other, up to which rows of a window are read in place: for more, packing them pays.
const FEW_TILES: usize = 4;

/// Elements that are multiplied and added in the time of storing or reading one by itself.
const STORE: usize = 16;

impl TileExtents {
    /// Of elements of this many bytes, where vectors have this many lanes of 32 bits.
    pub(super) const fn of_lanes(lanes: u32, bytes: usize) -> TileExtents {
        let heights = match lanes {
            16 => [10, 9, 6, 4],
            8 => [5, 4, 3, 2],
            _ => [6, 4, 3, 2],
        };
        // Two vectors of the wider sets; the compiler makes what it can of others.
        let vector = if lanes == 16 { 64 / bytes } else { 32 / bytes };
        TileExtents { heights, columns: [2 * vector, vector] }
    }

    /// Rows of the tiles of this many rows.
    fn rows(&self, m: usize) -> usize {
        let most = self.heights[0];
        let left = m % most;
        let last = self.heights.iter().rfind(|&&h| h >= left).copied().unwrap_or(most);
        m - left + if left == 0 { 0 } else { last }
    }
}

impl Orientation {
    /// The one that takes least for a product of this size; a tie keeps rows and columns, unless only the columns of the
    /// result are neighbours then.
    pub(super) fn of(
        [m, n, depth]: Size,
        [lhs, rhs]: [&GemmSide<'_>; 2],
        out: MatrixView,
        shape: TileExtents,
    ) -> Orientation {
        let upright = Self::best([m, n, depth], [lhs, rhs], out, shape);
        let turned = Self::best([n, m, depth], [rhs, lhs], out.transposed(), shape);
        let tie = turned.0 == upright.0 && out.column != 1 && out.row == 1;
        match turned.0 < upright.0 || tie {
            true => Orientation { turned: true, ..turned.1 },
            false => upright.1,
        }
    }

    /// The best one that does not exchange rows and columns, and what it takes: elements that are multiplied at each step of the
    /// depth, also where tiles stand out, and in the time of what else is done. Packing a line of a window takes about as long as
    /// the products of a tile; rows whose depth is contiguous are packed faster.
    fn best(
        [m, n, depth]: Size,
        [lhs, rhs]: [&GemmSide<'_>; 2],
        out: MatrixView,
        shape: TileExtents,
    ) -> (usize, Orientation) {
        let [tall, ..] = shape.heights;
        let [wide, vector] = shape.columns;
        let rows = shape.rows(m);
        let scattered = match out.column {
            1 => 0,
            // All but the first chunk of the depth read the result, too.
            _ => {
                let accesses = (2 * depth.div_ceil(CONTRACT_CHUNK)).saturating_sub(1);
                m.saturating_mul(n).saturating_mul(STORE * accesses) / depth.max(1)
            }
        };
        let all = |columns: usize| rows.saturating_mul(columns).saturating_add(scattered);
        let of_width = |columns: usize| {
            let in_place = matches!(lhs, GemmSide::Window(_)) && n <= FEW_TILES * wide;
            let left = match lhs {
                GemmSide::Matrix(_) => 0,
                // Offsets are read beside the elements.
                GemmSide::Window(_) if in_place => rows * n.next_multiple_of(columns) / 8,
                GemmSide::Window(w) if w.deep() => m * wide / 2,
                GemmSide::Window(_) => m.div_ceil(tall) * tall * wide,
            };
            let right = match rhs {
                GemmSide::Matrix(_) => 0,
                GemmSide::Window(_) => n.div_ceil(columns) * tall * wide,
            };
            let narrow = columns < wide;
            // A row of a narrow tile is read for half as many products.
            let narrowness = if narrow { rows * n.next_multiple_of(columns) / 8 } else { 0 };
            let time = all(n.next_multiple_of(columns)).saturating_add(left + right + narrowness);
            let how = Orientation {
                turned: false,
                narrow,
                rows_in_place: in_place,
                columns_in_place: false,
            };
            (time, how)
        };
        let mut best = of_width(wide);
        let narrow = of_width(vector);
        if narrow.0 < best.0 {
            best = narrow;
        }
        if let (GemmSide::Matrix(lhs), GemmSide::Window(w)) = (lhs, rhs)
            && lhs.column == 1
            && let Some(columns) = indirect::columns_of_vectors(w, n, vector)
        {
            let time = all(columns);
            if time < best.0 {
                let how = Orientation {
                    rows_in_place: false,
                    columns_in_place: true,
                    narrow: false,
                    turned: false,
                };
                best = (time, how);
            }
        }
        best
    }
}
