/** A text that survives a reload. Where the browser forbids storage, so that every access
 * throws, it lives as long as the page. */
export class Stored {
  private value: string | null = null;

  constructor(private readonly area: "localStorage" | "sessionStorage", private readonly key: string) {}

  get(): string | null {
    try {
      return window[this.area].getItem(this.key);
    } catch {
      return this.value;
    }
  }

  /** Whether it survives a reload. */
  set(value: string | null): boolean {
    this.value = value;
    try {
      if (value === null) window[this.area].removeItem(this.key);
      else window[this.area].setItem(this.key, value);
      return true;
    } catch {
      return false;
    }
  }
}
