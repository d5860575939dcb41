package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// deviceLifetime is how long a device cookie is valid after the last login.
const deviceLifetime = 180 * 24 * time.Hour

// DeviceCookie is for a browser or program that has logged in by an e-mail address: it opens a
// lane of the password queue, only for that address, and grants nothing else.
// See https://owasp.org/www-community/Slow_Down_Online_Guessing_Attacks_with_Device_Cookies.
func (t *Tokens) DeviceCookie(email string) http.Cookie {
	ends := t.clock().Add(deviceLifetime).Unix()
	return http.Cookie{
		Name: deviceName(email), Value: fmt.Sprintf("%d.%s", ends, deviceSignature(t.secrets[0], email, ends)), Path: "/api/v1/customers/login",
		MaxAge: int(deviceLifetime.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// KnownDevice reports whether a Cookie header has a valid device cookie of an e-mail address.
func (t *Tokens) KnownDevice(header, email string) bool {
	cookies, err := http.ParseCookie(header)
	return err == nil && slices.ContainsFunc(cookies, func(c *http.Cookie) bool {
		until, signature, _ := strings.Cut(c.Value, ".")
		ends, err := strconv.ParseInt(until, 10, 64)
		return err == nil && c.Name == deviceName(email) && t.clock().Unix() < ends && slices.ContainsFunc(t.secrets, func(secret []byte) bool {
			return hmac.Equal([]byte(signature), []byte(deviceSignature(secret, email, ends)))
		})
	})
}

// deviceName is the cookie's name, different for each person of a browser.
func deviceName(email string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(email)))
	return fmt.Sprintf("device-%x", sum[:8])
}

func deviceSignature(secret []byte, email string, ends int64) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "device cookie\x00%s\x00%d", strings.ToLower(email), ends) // it never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
