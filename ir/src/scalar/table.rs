//! Constant tables that scalar programs read.

use crate::dtype::DType;

/// A constant table that scalar programs may read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Table {
    /// 2/pi without its leading bits, by blocks of exponents: the bits, as `i64`, of `f64` numbers
    /// whose sums it is ([`TWO_OVER_PI`]).
    TwoOverPi,
}

impl Table {
    /// Every table.
    pub const ALL: [Table; 1] = [Table::TwoOverPi];

    /// Type of the entries.
    pub fn dtype(self) -> DType {
        match self {
            Table::TwoOverPi => DType::I64,
        }
    }

    /// The entries' bits.
    pub fn entries(self) -> &'static [u64] {
        match self {
            Table::TwoOverPi => &TWO_OVER_PI,
        }
    }
}

/// Bits of `f64` numbers, the words of 2/pi without leading bits: 16 blocks of two words, block b
/// for `f32` exponent fields from 16 b, without the bits from 2^(152 - 16 b) up; then 31 blocks of
/// four words, scaled by 2^200, block b for `f64` exponent fields from 32 (b + 33), without the
/// bits from 2^(21 - 32 b) up.
#[rustfmt::skip]
pub static TWO_OVER_PI: [u64; 156] = [
    0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056, 0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056,
    0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056, 0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056,
    0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056, 0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056,
    0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056, 0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056,
    0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056, 0x3fe4_5f30_6dc9_c883, 0xbc86_b01e_c541_7056,
    0x3f6f_306d_c9c8_82a5, 0x3bff_c275_7d1f_534e, 0x3e5b_9391_054a_7f0a, 0xbae5_05c1_5964_47e5,
    0x3d51_054a_7f09_d5f4, 0x39ff_534d_dc0d_b629, 0x3c44_fe13_abe8_fa9a, 0x38eb_b81b_6c52_b328,
    0x3b43_abe8_fa9a_6ee0, 0x37eb_6c52_b327_8872, 0x3a6a_3ea6_9bb8_1b6c, 0x3704_acc9_e21c_8210,
    0x4c64_5f30_6dc9_c883, 0xc906_b01e_c541_7056, 0xc5a6_447e_493a_d4ce, 0x424e_21c8_20ff_28b2,
    0x4bb9_836e_4e44_152a, 0xc80e_c541_7056_5912, 0x446b_6c52_b327_8872, 0x40d0_7f94_58ea_f7af,
    0x4990_54a7_f09d_5f48, 0xc625_9644_7e49_3ad5, 0x42b9_3c43_9041_fe51, 0x3f58_eaf7_aef1_586e,
    0x479d_5f47_d4d3_7703, 0x443b_6295_993c_4390, 0x40d0_7f94_58ea_f7af, 0xbd4d_4f24_6dc8_e2df,
    0x45b4_ddc0_db62_9599, 0x424e_21c8_20ff_28b2, 0xbed5_0851_0ea7_9237, 0x3b5b_8e90_9374_b802,
    0x4384_acc9_e21c_8210, 0xbffa_e9c5_4214_43aa, 0x3c7b_7246_e3a4_24dd, 0x3907_0032_4977_504f,
    0x418c_820f_f28b_1d5f, 0xbdf4_43a9_e48d_b91c, 0xba96_f6c8_b47f_e6db, 0xb731_15f6_2e6d_e302,
    0x3fb1_63ab_debb_c562, 0xbc52_36e4_716f_6c8b, 0xb8f1_ff9b_6d11_5f63, 0x3579_21cf_e1de_b1cb,
    0x3dbb_c561_b724_6e3a, 0x3a50_9374_b801_924c, 0xb6f1_5f62_e6de_301e, 0xb380_a71a_76b2_c609,
    0x3b91_b8e9_0937_4b80, 0x3819_24bb_a827_4648, 0x34bc_fe1d_eb1c_b12a, 0xb156_3045_df72_82b4,
    0x39ab_a5c0_0c92_5dd4, 0x3623_a324_39fc_3bd6, 0x32bc_b129_a73e_e882, 0x2f4a_fa97_5da2_4275,
    0x37a2_5dd4_13a3_243a, 0xb3fe_214e_34ed_658c, 0xb071_77dc_a0ad_144c, 0x2d12_13a6_71c0_9ad1,
    0x35b1_921c_fe1d_eb1d, 0xb253_b596_3045_df73, 0x2eff_52eb_b448_4e9a, 0xab8c_7eca_5d04_0df6,
    0x33bd_eb1c_b129_a73f, 0xb037_7dca_0ad1_44bb, 0xacde_c598_e3f6_52e8, 0xa960_37d8_cdc5_38d0,
    0x31a3_4e7d_d104_6bea, 0x2e47_5da2_4274_ce38, 0x2ac3_5a2f_bf20_9cc9, 0xa744_e33e_5663_05b2,
    0x2f81_afa9_75da_2427, 0x2c23_38e0_4d68_befd, 0xa8cf_6337_14e3_3e56, 0xa568_c16c_6f74_0e88,
    0x2dbb_4484_e99c_7027, 0xaa52_e820_6fb1_9b8a, 0xa6fc_67ca_cc60_b638, 0x2391_7e2e_f7e4_a0ec,
    0x2bbc_7026_b45f_7e41, 0x284c_c8eb_1cc1_a99d, 0xa4a6_c6f7_40e8_840e, 0x2144_1d8f_fc4b_ffef,
    0x29bf_7e41_3991_d63a, 0xa65f_2b31_82d8_dee8, 0xa2dd_1081_b5f1_3802, 0x1f62_fffb_c0b3_01fe,
    0x27b1_d639_8353_39f5, 0xa458_dee8_1d10_81b6, 0x20cd_8ffc_4bff_ef03, 0x9d59_fc04_343b_9d29,
    0x25b3_39f4_9c84_5f8c, 0xa250_81b5_f138_01da, 0x9e40_fd33_f808_6877, 0x9add_297d_64b8_24b2,
    0x2391_7e2e_f7e4_a0ec, 0x203f_f897_ffde_0598, 0x1caf_de5e_2316_b415, 0x9932_e092_c981_30d8,
    0x21b9_283b_1ff8_9800, 0x9e40_fd33_f808_6877, 0x9add_297d_64b8_24b2, 0x9778_130d_834f_648b,
    0x1fb8_97ff_de05_9810, 0x9c30_d0ee_74a5_f593, 0x18bf_6d36_7ecf_27cb, 0x1523_6e9e_8c7e_cd3d,
    0x1d96_603f_bcbc_462d, 0x1a3a_0a6d_1f6d_367f, 0x96c8_6c1a_7b24_585d, 0x134f_b34f_2ff5_16bb,
    0x1bae_2316_b414_da3f, 0x9832_c981_30d8_34f6, 0x94d2_2c2e_7026_5868, 0x9135_d28a_d845_3814,
    0x19a4_da3e_da6c_fd9e, 0x1643_e584_dba7_a320, 0x92e3_2c34_02ba_515b, 0x8f51_4e05_0683_a131,
    0x17b6_7ecf_27cb_09b7, 0x1453_d18f_d9a7_97fb, 0x90fd_28ad_8453_8142, 0x0d97_c5ec_f41c_e7de,
    0x15a6_136e_9e8c_7ecd, 0x123e_5fea_2d75_27bb, 0x8ecc_0a0d_0742_617c, 0x8b68_c10e_b5ad_a2b3,
    0x1398_fd9a_797f_a8b6, 0x9025_b08a_7028_341d, 0x8c93_0be3_1821_d6b6, 0x0932_ea6b_fb5f_b120,
    0x11bf_ea2d_7527_bac8, 0x8e34_1a0e_84c2_f8c6, 0x8aa0_eb5a_da2b_2809, 0x8740_2770_3951_7bd5,
];
