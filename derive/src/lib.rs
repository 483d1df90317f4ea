//! `#[derive(Params)]`: a struct or an enum over a type of leaves as a tree of parameters.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::Error;
use syn::visit::{self, Visit};
use syn::{Data, DeriveInput, Field, Fields, Generics, Type, TypeParam, parse_quote};

/// Makes a type a tree of parameters: `adfuse::Params<T>` for the first type parameter `T`.
///
/// Fields whose types mention `T` are branches or leaves, and their names are segments of the paths of leaves; the only field of a tuple
/// struct or of a variant adds no segment. All other fields are settings, which are cloned. The parameter may have a default, as in
/// `struct Mlp<T = Tensor>`.
///
/// # Errors
/// A compile error for a union, and for a type without a type parameter.
#[proc_macro_derive(Params)]
pub fn derive_params(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    params(&input).unwrap_or_else(|e| e.to_compile_error()).into()
}

fn params(input: &DeriveInput) -> Result<TokenStream, Error> {
    let name = &input.ident;
    let Some(leaf) = input.generics.type_params().next().map(|p| p.ident.clone()) else {
        let m = format!(
            "a tree of parameters is generic over its leaves: write `{name}<T = Tensor>`, and `T` or `Linear<T>` for its fields"
        );
        return Err(Error::new(name.span(), m));
    };
    let other = fresh(&input.generics);
    let generics = with_leaf_bound(&input.generics, &leaf);
    let (to_impl, of_type, bounds) = generics.split_for_impl();
    let with = renamed(&input.generics, &leaf, &other);
    let arms = match &input.data {
        Data::Struct(data) => vec![arm(&quote!(#name), &data.fields, None, (&leaf, &other))],
        Data::Enum(data) => {
            let variant = |v: &syn::Variant| {
                let variant = &v.ident;
                let mark = variant.to_string();
                arm(&quote!(#name::#variant), &v.fields, Some(&mark), (&leaf, &other))
            };
            data.variants.iter().map(variant).collect()
        }
        Data::Union(_) => {
            return Err(Error::new(name.span(), "a union is no tree of parameters"));
        }
    };
    Ok(quote! {
        #[automatically_derived]
        impl #to_impl ::adfuse::tree::Params<#leaf> for #name #of_type #bounds {
            type With<#other: ::adfuse::tree::Leaf> = #name #with;

            fn map_leaves<#other: ::adfuse::tree::Leaf>(
                &self,
                path: &mut ::adfuse::tree::Path,
                f: &mut dyn ::core::ops::FnMut(&::adfuse::tree::Path, &#leaf) -> #other,
            ) -> Self::With<#other> {
                match self { #(#arms)* }
            }
        }
    })
}

/// The arm of a struct, or of a variant of this name: its fields, mapped.
fn arm(
    constructor: &TokenStream,
    fields: &Fields,
    variant: Option<&str>,
    (leaf, other): (&Ident, &Ident),
) -> TokenStream {
    let mark = variant.map(|name| quote! { path.mark(#name); });
    let names: Vec<Ident> = fields
        .iter()
        .enumerate()
        .map(|(k, f)| f.ident.clone().unwrap_or_else(|| format_ident!("field{k}")))
        .collect();
    // Fields may have the names of the method's parameters.
    let bound: Vec<Ident> = (0..names.len()).map(|k| format_ident!("own{k}")).collect();
    let alone = matches!(fields, Fields::Unnamed(all) if all.unnamed.len() == 1);
    let values: Vec<TokenStream> = fields
        .iter()
        .zip(&bound)
        .enumerate()
        .map(|(k, (field, bound))| mapped(field, (k, bound), alone, (leaf, other)))
        .collect();
    match fields {
        Fields::Named(_) => quote! {
            #constructor { #(#names: #bound),* } => { #mark #constructor { #(#names: #values),* } }
        },
        Fields::Unnamed(_) => quote! {
            #constructor(#(#bound),*) => { #mark #constructor(#(#values),*) }
        },
        Fields::Unit => quote! { #constructor => { #mark #constructor } },
    }
}

fn mapped(
    field: &Field,
    (k, bound): (usize, &Ident),
    alone: bool,
    (leaf, other): (&Ident, &Ident),
) -> TokenStream {
    let ty = &field.ty;
    if !mentions(ty, leaf) {
        return quote! { ::core::clone::Clone::clone(#bound) };
    }
    let map = quote! { <#ty as ::adfuse::tree::Params<#leaf>>::map_leaves::<#other> };
    if alone {
        return quote! { #map(#bound, path, f) };
    }
    let segment = field.ident.as_ref().map_or_else(
        || k.to_string(),
        |name| name.to_string().trim_start_matches("r#").to_string(),
    );
    quote! { path.within(#segment, |path| #map(#bound, path, f)) }
}

/// Whether a type mentions a type parameter.
fn mentions(ty: &Type, parameter: &Ident) -> bool {
    struct Finder<'a> {
        parameter: &'a Ident,
        found: bool,
    }
    impl<'ast> Visit<'ast> for Finder<'_> {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            let first = path.segments.first();
            self.found |= first.is_some_and(|segment| &segment.ident == self.parameter);
            visit::visit_path(self, path);
        }
    }
    let mut finder = Finder { parameter, found: false };
    finder.visit_type(ty);
    finder.found
}

/// The generics with the parameter bound to be a leaf.
fn with_leaf_bound(generics: &Generics, leaf: &Ident) -> Generics {
    let mut generics = generics.clone();
    let parameters = generics.params.iter_mut().filter_map(|p| match p {
        syn::GenericParam::Type(p) => Some(p),
        _ => None,
    });
    for TypeParam { ident, bounds, .. } in parameters {
        if ident == leaf {
            bounds.push(parse_quote!(::adfuse::tree::Leaf));
        }
    }
    generics
}

/// The arguments of the type with another leaf.
fn renamed(generics: &Generics, leaf: &Ident, other: &Ident) -> TokenStream {
    let arguments = generics.params.iter().map(|p| match p {
        syn::GenericParam::Lifetime(p) => {
            let lifetime = &p.lifetime;
            quote!(#lifetime)
        }
        syn::GenericParam::Type(p) if &p.ident == leaf => quote!(#other),
        syn::GenericParam::Type(p) => {
            let name = &p.ident;
            quote!(#name)
        }
        syn::GenericParam::Const(p) => {
            let name = &p.ident;
            quote!(#name)
        }
    });
    quote!(<#(#arguments),*>)
}

/// A name that no parameter of the type has.
fn fresh(generics: &Generics) -> Ident {
    let taken = |name: &str| generics.type_params().any(|p| p.ident == name);
    let mut name = "Other".to_string();
    while taken(&name) {
        name.push('_');
    }
    Ident::new(&name, Span::call_site())
}
