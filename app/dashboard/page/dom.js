// Filling templates. Every text goes in as text: there is no place where a string becomes HTML.

export const byId = (id) => document.getElementById(id);

/** Make an element of a <template>. */
export const stamp = (id) => byId(id).content.firstElementChild.cloneNode(true);

/** Write the texts of an element by the names in `data-text`. What is unchanged is left alone, or it would be read out again. */
export function write(element, texts) {
  for (const place of element.querySelectorAll("[data-text]")) {
    const text = texts[place.dataset.text];
    if (text !== undefined && place.textContent !== (text ?? "")) place.textContent = text ?? "";
  }
}

/** Show `items` as children of `list`: one a key, kept while its item stays, so that focus and selection stay too. */
export function show(list, items, { keyOf, make, update }) {
  const known = new Map([...list.children].map((child) => [child.dataset.key, child]));
  let before = null;
  for (const item of items) {
    const name = String(keyOf(item));
    const element = known.get(name) ?? make(item);
    known.delete(name);
    element.dataset.key = name;
    update(element, item);
    const place = before ? before.nextElementSibling : list.firstElementChild;
    if (place !== element) list.insertBefore(element, place);
    before = element;
  }
  for (const gone of known.values()) gone.remove();
}

/** Show plain lines of one template. */
export const showLines = (list, items, template, update) =>
  show(list, items.map((item, number) => ({ item, number })), {
    keyOf: ({ number }) => number,
    make: () => stamp(template),
    update: (element, { item }) => update(element, item),
  });
