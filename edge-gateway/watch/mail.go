package watch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	netsmtp "net/smtp"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/email/smtp"
)

// mail sends a message by the mail server of an smtp URL, within the time of ctx. The library reads
// the URL; its own sending waits for ever for a server that hangs, and when that goes on, each of
// the tries arrives.
func mail(ctx context.Context, configured, title, text string) error {
	var service smtp.Service
	address, err := url.Parse(configured)
	if err == nil {
		err = service.Initialize(address, nil)
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller redacts it
	}
	c := service.Config
	c.FixEmailTags()
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	if err != nil {
		return err //nolint:wrapcheck // it names the server
	}
	defer func() { _ = connection.Close() }()
	defer context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })()
	security := &tls.Config{ServerName: c.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.SkipTLSVerify} //nolint:gosec // the URL says so
	implicit := c.Encryption == smtp.EncImplicitTLS || c.Encryption == smtp.EncAuto && c.Port == smtp.ImplicitTLSPort
	if implicit {
		connection = tls.Client(connection, security)
	}
	client, err := netsmtp.NewClient(connection, c.Host)
	if err == nil && c.ClientHost != "auto" {
		err = client.Hello(c.ClientHost)
	}
	if err == nil && c.UseStartTLS && !implicit {
		if offered, _ := client.Extension("STARTTLS"); offered {
			err = client.StartTLS(security)
		} else if c.RequireStartTLS {
			err = errors.New("it does not support STARTTLS")
		}
	}
	if auth := authentication(c); err == nil && auth != nil {
		err = client.Auth(auth)
	}
	if err == nil {
		err = client.Mail(c.FromAddress)
	}
	for _, to := range c.ToAddresses {
		if err == nil {
			err = client.Rcpt(to)
		}
	}
	if err == nil {
		var body io.WriteCloser
		if body, err = client.Data(); err == nil {
			_, err = fmt.Fprintf(body, "Date: %s\nFrom: %s <%s>\nTo: %s\nSubject: %s\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\n%s",
				time.Now().Format(time.RFC1123Z), c.FromName, c.FromAddress, strings.Join(c.ToAddresses, ", "), mime.BEncoding.Encode("utf-8", title), text) //nolint:forbidigo // nothing is judged by it
			err = errors.Join(err, body.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("mail server %s: %w", c.Host, err)
	}
	_ = client.Quit() // it has the message
	return nil
}

func authentication(c *smtp.Config) netsmtp.Auth {
	switch c.Auth {
	case smtp.AuthTypes.Plain:
		return netsmtp.PlainAuth("", c.Username, c.Password, c.Host)
	case smtp.AuthTypes.CRAMMD5:
		return netsmtp.CRAMMD5Auth(c.Username, c.Password)
	case smtp.AuthTypes.OAuth2:
		return smtp.OAuth2Auth(c.Username, c.Password)
	default:
		return nil
	}
}
